// The checked calls: a layer's output projection with its residual, the RMSNorm behind it, and a gated feed-forward's
// first half, in two products and one small reduction. README.md shows them.
#include <cmath>
#include <cstdio>
#include <vector>

#include "coda/coda.h"

namespace ops = coda::ops;
using coda::bf16;

int main() {
  const std::int64_t tokens = 48, hidden = 256, ffn = 384;
  const auto values = [](std::int64_t count, double scale) {
    std::vector<bf16> v(count);
    for (std::int64_t i = 0; i < count; ++i) v[i] = bf16(float(scale * std::sin(double(7 * i % 1009))));
    return v;
  };
  const auto matrix = [](std::vector<bf16>& v, std::int64_t rows, std::int64_t cols) {
    return coda::MatrixOf<bf16>(v.data(), rows, cols);
  };
  std::vector<bf16> in = values(tokens * hidden, 1), residual = values(tokens * hidden, 2),
                    w_out = values(hidden * hidden, 0.1), w_norm = values(hidden, 1),
                    w_gate_up = values(2 * ffn * hidden, 0.1), h_values(tokens * hidden), y_values(tokens * ffn);
  std::vector<float> sums(tokens * ops::tiles_n(hidden)), scales(tokens);

  const auto x = matrix(residual, tokens, hidden), h = matrix(h_values, tokens, hidden);
  const auto y = matrix(y_values, tokens, ffn);
  const coda::MatrixOf<float> sum_sq(sums.data(), tokens, ops::tiles_n(hidden));
  const coda::Vector rstd(scales.data(), coda::DType::fp32, tokens), norm(w_norm.data(), coda::DType::bf16, hidden);

  ops::gemm_residual({.a = matrix(in, tokens, hidden),
                      .b = matrix(w_out, hidden, hidden),
                      .residual = x,
                      .weight = norm,
                      .x = x,  // in place
                      .h = h,
                      .sum_sq = sum_sq});
  ops::rms_finalize({.sum_sq = sum_sq, .n = hidden, .rstd = rstd});
  ops::gemm_norm_glu({.a = h, .b = matrix(w_gate_up, 2 * ffn, hidden), .norm = {.rstd = rstd}, .out = y});

  // The last call again in fp64, from what it read.
  double error = 0, scale = 0;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (std::int64_t j = 0; j < ffn; ++j) {
      double z[2] = {0, 0};
      for (std::int64_t k = 0; k < hidden; ++k)
        for (int i = 0; i < 2; ++i)
          z[i] += scales[m] * double(h_values[m * hidden + k]) * double(w_gate_up[(2 * j + i) * hidden + k]);
      const double want = z[0] / (1 + std::exp(-z[0])) * z[1];
      error += std::pow(double(y_values[m * ffn + j]) - want, 2), scale += want * want;
    }
  }
  std::printf("checked calls: relative error %.1e\n", std::sqrt(error / scale));
  return std::sqrt(error / scale) < 4e-3 ? 0 : 1;
}
