// mma.sync: a warp's matrix product on the tensor cores (sm_80).
#pragma once

#include <stdint.h>

/// d += a·b with a [16, 16] and b [16, 8] in bf16, d [16, 8] in f32. With g = lane / 4 and t = lane mod 4:
///   a  rows g, g + 8, g, g + 8; columns 2t, 2t + 1 of the left half (a[0], a[1]) and the right half (a[2], a[3])
///   b  rows 2t, 2t + 1 of the upper half (b0) and the lower half (b1); column g
///   d  row g, columns 2t, 2t + 1 (d[0], d[1]); row g + 8 (d[2], d[3])
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
