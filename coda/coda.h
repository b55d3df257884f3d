// All of the public interface: write programs and run them (coda::gemm), or call the checked operations (coda::ops).
#pragma once

#include "coda/backend/cpu/gemm.h"
#include "coda/core/error.h"
#include "coda/core/tensor.h"
#include "coda/ops/ops.h"
#include "coda/programs/activation.h"
#include "coda/programs/gemm.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"
