// Runs the program on the CPU and, where there is a Hopper GPU, on that; both compute the same.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "own_program.h"

using coda::bf16;

int main() {
  const std::int64_t m = 300, n = 520, k = 64;
  std::vector<bf16> x(m * k), w(n * k), y(m * n);
  std::vector<float> bias(n), sums(coda::cpu::tiles_m(m) * n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = bf16(std::sin(float(i)));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = bf16(std::cos(float(3 * i)) / 8);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = 0.01f * float(i % 7);
  const coda::MatrixOf<bf16> a(x.data(), m, k), b(w.data(), n, k), out(y.data(), m, n);
  coda::gemm(a, b, TanhColumnSums{{bias, 0}, out, coda::MatrixOf<float>(sums.data(), coda::cpu::tiles_m(m), n)});

  std::string why;
  if (!coda::sm90::available(&why)) {
    std::printf("on the CPU; not on a GPU: %s\n", why.c_str());
    return 0;
  }
  const auto upload = [](const void* data, std::size_t bytes) {
    coda::sm90::DeviceBuffer buffer(bytes);
    buffer.upload(data, bytes);
    return buffer;
  };
  const std::int64_t tiles = coda::sm90::tiles_m(m);
  const auto dx = upload(x.data(), x.size() * 2), dw = upload(w.data(), w.size() * 2),
             db = upload(bias.data(), bias.size() * 4);
  coda::sm90::DeviceBuffer dy(y.size() * 2), ds(static_cast<std::size_t>(tiles * n) * 4);
  run_on_hopper({static_cast<bf16*>(dx.data()), m, k}, {static_cast<bf16*>(dw.data()), n, k},
                {{coda::VectorOf<float>(static_cast<float*>(db.data()), n)},
                 coda::MatrixOf<bf16>(static_cast<bf16*>(dy.data()), m, n),
                 coda::MatrixOf<float>(static_cast<float*>(ds.data()), tiles, n)});
  std::vector<bf16> y_there(y.size());
  std::vector<float> sums_there(static_cast<std::size_t>(tiles * n));
  dy.download(y_there.data(), y_there.size() * 2);
  ds.download(sums_there.data(), sums_there.size() * 4);

  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::abs(double(y[i]) - double(y_there[i])));
  for (std::int64_t c = 0; c < n; ++c) {
    double here = 0, there = 0;
    for (std::int64_t t = 0; t < coda::cpu::tiles_m(m); ++t) here += sums[t * n + c];
    for (std::int64_t t = 0; t < tiles; ++t) there += sums_there[t * n + c];
    worst = std::max(worst, std::abs(here - there) / double(m));
  }
  std::printf("on both: largest difference %.1e\n", worst);
  return worst <= 8e-3 ? 0 : 1;  // two units in the last place of bf16 near 1
}
