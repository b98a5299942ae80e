// What becomes of a product before it is written. An epilogue is first bound to N neighbouring columns, for each thread
// meets its own in many rows; what that gives is called with their elements of a row of C.
#pragma once

#include "../elementary.cuh"
#include "../mask.cuh"
#include "matrix.cuh"

/// C = product, or C += product.
template <typename T> struct Store {
    Matrix<T> c;
    bool accumulate;

    template <int N> __device__ auto at(uint32_t column) const {
        return [this, column](uint32_t row, float(&x)[N]) {
            if (accumulate) {
                float before[N];
                c.load(before, row, column);
#pragma unroll
                for (int j = 0; j < N; j++) x[j] += before[j];
            }
            c.store(row, column, x);
        };
    }
};

/// C = relu(product)²·m; `raw` keeps the product for the backward pass where `keep_raw` says so. Row 0 of C is row
/// `first` of what the mask covers.
template <typename T> struct Relu2 {
    Matrix<T> c, raw;
    bool keep_raw;
    const Mask &mask;
    uint32_t first;

    template <int N> __device__ auto at(uint32_t column) const {
        return [this, column, columns = MaskColumns<N>(mask, column)](uint32_t row, float(&x)[N]) {
            if (row >= c.rows) return;
            if (keep_raw) raw.store(row, column, x);
            float m[N];
            columns.values(m, mask, first + row);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float p = positive(x[j]);
                x[j] = masked(p * p, m[j]);
            }
            c.store(row, column, x);
        };
    }
};

/// C = h + m·g·product; `raw` as above.
template <typename T> struct ResidualAdd {
    Matrix<T> c, raw;
    bool keep_raw;
    Matrix<const T> h;
    const Mask &hidden, &gate;

    template <int N> __device__ auto at(uint32_t column) const {
        return [this, column, columns = MaskColumns<N>(hidden, column)](uint32_t row, float(&x)[N]) {
            if (row >= c.rows) return;
            if (keep_raw) raw.store(row, column, x);
            float m[N], before[N];
            columns.values(m, hidden, row);
            h.load(before, row, column);
            const float g = gate_of(gate, row);
#pragma unroll
            for (int j = 0; j < N; j++) x[j] = before[j] + masked(x[j], m[j] * g);
            c.store(row, column, x);
        };
    }
};
