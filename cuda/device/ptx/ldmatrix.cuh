// ldmatrix: four 8×8 matrices of 16-bit elements from shared memory, laid out over the lanes as mma takes them (sm_75).
#pragma once

#include <stdint.h>

/// Lane l gives the address of row l mod 8 of matrix l / 8 (16 bytes, aligned). Register i of lane l receives elements
/// (l / 4, 2·(l mod 4)) and the one beside it of matrix i.
__device__ inline void ldmatrix_x4(uint32_t (&x)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}

/// As above, each matrix transposed.
__device__ inline void ldmatrix_x4_trans(uint32_t (&x)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
}
