// How a kernel begins.
#pragma once

#include "../abi.h"

/// KERNEL(threads of a block[, blocks that a multiprocessor should hold]) name(const __grid_constant__ Arguments args)
/// { … }
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
