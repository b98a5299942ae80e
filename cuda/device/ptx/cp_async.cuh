// cp.async: copies from global to shared memory that do not pass through registers (PTX ISA, "Data Movement and
// Conversion Instructions"; sm_80).
#pragma once

#include <stdint.h>

/// The address of shared memory in its own 32-bit space, as inline PTX takes it.
__device__ inline uint32_t shared_address(const void *memory) { return uint32_t(__cvta_generic_to_shared(memory)); }

/// Starts a copy of `bytes` (0 to 16) of the 16 at `from`, past the L1; the rest of the 16 at `to` becomes zeros. Both
/// are aligned to 16. With 0 bytes nothing is read.
__device__ inline void copy_async_16(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
        : "memory");
}

/// Closes a group: the copies that this thread started since the last one.
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `PENDING` of this thread's youngest groups are under way. Others' copies need a barrier besides.
template <int PENDING> __device__ inline void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
