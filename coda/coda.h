// All of the public interface: write programs and run them (coda::gemm), or call the checked operations (coda::ops).
#pragma once

#if !defined(__CUDACC__)  // in a .cu file coda/backend/sm90/gemm.cuh runs programs
#include "coda/backend/cpu/gemm.h"
#endif
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/device.h"
#include "coda/core/error.h"
#include "coda/core/tensor.h"
#include "coda/ops/layer.h"
#include "coda/ops/ops.h"
#include "coda/programs/activation.h"
#include "coda/programs/gemm.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"
