// Activations and their derivatives.
#pragma once

/// 1 / (1 + e⁻ˣ).
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// x·sigmoid(x).
__device__ inline float silu(float x) { return x * sigmoid(x); }

/// d silu / dx, from x and its sigmoid s.
__device__ inline float silu_grad(float x, float s) { return s * (1.0f + x * (1.0f - s)); }

/// max(x, 0), NaN kept: a broken activation must show, not turn into 0.
__device__ inline float positive(float x) { return x < 0.0f ? 0.0f : x; }
