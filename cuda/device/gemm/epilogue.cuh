// What becomes of a product before it is written. An epilogue is called with N neighbouring elements of a row of C.
#pragma once

#include "../elementary.cuh"
#include "../mask.cuh"
#include "matrix.cuh"

/// C = product, or C += product.
template <typename T> struct Store {
    Matrix<T> c;
    bool accumulate;

    template <int N> __device__ void operator()(uint32_t row, uint32_t column, float (&x)[N]) const {
        if (accumulate) {
            float before[N];
            c.load(before, row, column);
#pragma unroll
            for (int j = 0; j < N; j++) x[j] += before[j];
        }
        c.store(row, column, x);
    }
};

/// The mask's values at N columns of a row. They are found by a search: a thread meets few columns, and many rows.
template <int N> __device__ void mask_values(float (&m)[N], const Mask &mask, uint32_t row, uint32_t column) {
    const float *keep = mask.candidates ? keep_of(mask, row) : nullptr;
#pragma unroll
    for (int j = 0; j < N; j++) m[j] = keep ? keep[interval_of(mask, column + j)] : 1.0f;
}

/// C = relu(product)²·m; `raw` keeps the product for the backward pass where `keep_raw` says so. Row 0 of C is row `first` of
/// what the mask covers.
template <typename T> struct Relu2 {
    Matrix<T> c, raw;
    bool keep_raw;
    const Mask &mask;
    uint32_t first;

    template <int N> __device__ void operator()(uint32_t row, uint32_t column, float (&x)[N]) const {
        if (row >= c.rows || column >= c.columns) return;
        if (keep_raw) raw.store(row, column, x);
        float m[N];
        mask_values(m, mask, first + row, column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float p = positive(x[j]);
            x[j] = masked(p * p, m[j]);
        }
        c.store(row, column, x);
    }
};

/// C = h + m·g·product; `raw` as above.
template <typename T> struct ResidualAdd {
    Matrix<T> c, raw;
    bool keep_raw;
    Matrix<const T> h;
    const Mask &hidden, &gate;

    template <int N> __device__ void operator()(uint32_t row, uint32_t column, float (&x)[N]) const {
        if (row >= c.rows || column >= c.columns) return;
        if (keep_raw) raw.store(row, column, x);
        float m[N], before[N];
        mask_values(m, hidden, row, column);
        h.load(before, row, column);
        const float g = gate_of(gate, row);
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = before[j] + masked(x[j], m[j] * g);
        c.store(row, column, x);
    }
};
