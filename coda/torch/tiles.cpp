// How many tiles partial results have. These operators take no tensors, and return a number.
#include "coda/torch/call.h"

namespace coda::pytorch {
namespace {

constexpr const char* kBackend[] = {"cpu", "sm90"};

void tiles_n(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("tiles_n", stack);
  std::int64_t n = 0;
  coda_backend backend = CODA_BACKEND_CPU;
  call.take("n", n);
  call.take("backend", backend, kBackend);
  call.throw_if_wrong();
  stack[0] = torch::stable::detail::from(coda_tiles_n(n, backend));
}

void tiles_m(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("tiles_m", stack);
  std::int64_t m = 0;
  coda_backend backend = CODA_BACKEND_CPU;
  call.take("m", m);
  call.take("backend", backend, kBackend);
  call.throw_if_wrong();
  stack[0] = torch::stable::detail::from(coda_tiles_m(m, backend));
}

void head_tiles_n(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("head_tiles_n", stack);
  std::int64_t n = 0, head_dim = 0, tiles = 0;
  coda_backend backend = CODA_BACKEND_CPU;
  call.take("n", n);
  call.take("head_dim", head_dim);
  call.take("backend", backend, kBackend);
  call.throw_if_wrong();
  call.check(coda_head_tiles_n(n, head_dim, backend, &tiles));
  stack[0] = torch::stable::detail::from(tiles);
}

}  // namespace
}  // namespace coda::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(coda, m) {
  m.def("tiles_n(int n, str backend) -> int");
  m.def("tiles_m(int m, str backend) -> int");
  m.def("head_tiles_n(int n, int head_dim, str backend) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(coda, CompositeImplicitAutograd, m) {
  m.impl("tiles_n", &coda::pytorch::tiles_n);
  m.impl("tiles_m", &coda::pytorch::tiles_m);
  m.impl("head_tiles_n", &coda::pytorch::head_tiles_n);
}
