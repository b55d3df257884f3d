// The interface for C: each function is the call of its name, its structs hold what is put into them, and what fails is
// a status and a message. examples/c_calls.c is C itself.
#include <fmt/ranges.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

#include "coda/backend/sm90/device.h"
#include "coda/c/call.h"
#include "coda/c/coda.h"
#include "coda/core/build_info.h"
#include "tests/c/members.h"
#include "tests/ops/layer_case.h"

namespace coda::test {
namespace {

coda_matrix c_of(const Matrix& m) { return std::bit_cast<coda_matrix>(m); }
coda_const_matrix c_of(const ConstMatrix& m) { return std::bit_cast<coda_const_matrix>(m); }
coda_vector c_of(const Vector& v) { return std::bit_cast<coda_vector>(v); }
coda_const_vector c_of(const ConstVector& v) { return std::bit_cast<coda_const_vector>(v); }

std::string message() { return coda_last_error(); }
bool begins(const std::string& text, const std::string& begin) { return text.rfind(begin, 0) == 0; }

/// A backend that there is not, and no arguments: errors that name the operation.
template <class Args>
void expect_named(const std::string& operation, Args (*defaults)(), coda_status (*run)(const Args*)) {
  Args args = defaults();
  args.on.backend = 9;
  EXPECT_EQ(run(&args), CODA_INVALID_ARGUMENT) << operation;
  EXPECT_TRUE(begins(message(), operation + ": on.backend: ")) << operation << ": got the message: " << message();
  EXPECT_EQ(run(nullptr), CODA_INVALID_ARGUMENT) << operation;
  EXPECT_EQ(message(), operation + ": args: expected a struct, got a null pointer");
}

TEST(CCalls, EachIsTheOperationOfItsName) {
  int calls = 0;
  for_each_call(
      [&](const char* operation, auto defaults, auto run) { expect_named(operation, defaults, run), ++calls; });
  EXPECT_GT(calls, 30);
}

TEST(CCalls, DefaultsAreThoseOfCpp) {
  EXPECT_EQ(coda_gemm_defaults().alpha, 1);
  EXPECT_EQ(coda_gemm_defaults().beta, 0);
  EXPECT_EQ(coda_gemm_defaults().a.data, nullptr);
  EXPECT_EQ(coda_rms_finalize_defaults().eps, 1e-5);
  EXPECT_EQ(coda_gemm_lse_defaults().transform.scale, 1);
  EXPECT_EQ(coda_gemm_lse_defaults().ignore_index, -100);
  EXPECT_EQ(coda_linear_cross_entropy_backward_defaults().chunk, 4096);
  EXPECT_EQ(coda_linear_cross_entropy_backward_defaults().options.ignore_index, -100);
  EXPECT_EQ(coda_gemm_rms_backward_defaults().layout, CODA_LAYOUT_NN);
  EXPECT_EQ(coda_gemm_activation_backward_defaults().activation, CODA_ACTIVATION_SILU);
  EXPECT_EQ(coda_adamw_defaults().beta2, 0.95);
  EXPECT_EQ(coda_adamw_defaults().step, 1);
  EXPECT_EQ(coda_block_defaults().head_eps, 1e-6);
  EXPECT_EQ(coda_block_defaults().workspace.data, nullptr);
  EXPECT_EQ(coda_block_defaults().workspace.bytes, 0u);
  EXPECT_EQ(coda_block_defaults().traffic, nullptr);
  EXPECT_EQ(coda_block_backward_defaults().beta, 1);
  EXPECT_EQ(coda_layer_shape_defaults().dtype, CODA_DTYPE_BF16);
  EXPECT_FALSE(coda_layer_shape_defaults().qk_norm);
}

/// `of_cpp` and `of_c` each fill and run a case; their outputs have the same bits.
template <class OfCpp, class OfC>
void expect_same(DType type, const OfCpp& of_cpp, const OfC& of_c) {
  const auto fresh = [&] { return Case(type, coda::Layout::nt, 37, 48, 40, 1, false, base_seed()); };
  Case x = fresh(), y = fresh();
  of_cpp(x);
  ASSERT_EQ(of_c(y), CODA_OK) << message();
  EXPECT_EQ(x.difference(y), "");
  EXPECT_NE(y.touched(), "") << "the call wrote nothing";
}

TEST(CCalls, GemmTakesAllOfItsOptions) {
  for (const DType type : kTypes) {
    expect_same(
        type,
        [](Case& c) {
          c.draw_product();
          const ConstMatrix add = c.in(c.draw(37, 48));
          ops::gemm({.a = c.a,
                     .b = c.b,
                     .alpha = 0.5,
                     .beta = -2,
                     .c = add,
                     .bias = c.vec(Vec(48, 0.25)),
                     .activation = ops::Activation::gelu_tanh,
                     .preact = c.out("preact", 37, 48),
                     .out = c.out("out", 37, 48)});
        },
        [](Case& c) {
          c.draw_product();
          coda_gemm_args args = coda_gemm_defaults();
          args.a = c_of(c.a);
          args.b = c_of(c.b);
          args.alpha = 0.5;
          args.beta = -2;
          args.c = c_of(c.in(c.draw(37, 48)));
          args.bias = c_of(c.vec(Vec(48, 0.25)));
          args.activation = CODA_ACTIVATION_GELU_TANH;
          args.preact = c_of(c.out("preact", 37, 48));
          args.out = c_of(c.out("out", 37, 48));
          return coda_gemm(&args);
        });
  }
}

TEST(CCalls, HeadsAndNormsGoThrough) {
  Guarded<float> table(50, 8);
  ops::rotary_table(table.matrix(), 500);
  Guarded<float> from_c(50, 8);
  EXPECT_EQ(coda_rotary_table(coda_matrix_of(from_c.data(), CODA_DTYPE_FP32, 50, 8), 500), CODA_OK);
  EXPECT_EQ(check_bits("table", ConstMatrix(from_c.any_matrix()), ConstMatrix(table.any_matrix())), "");
  const std::vector<double> frequency{1, 0.3, 0.07, 0.002};
  Guarded<float> scaled(50, 8), scaled_from_c(50, 8);
  ops::rotary_table_from(scaled.matrix(), ConstVector(frequency.data(), DType::fp64, 4), 1.25);
  EXPECT_EQ(coda_rotary_table_from(coda_matrix_of(scaled_from_c.data(), CODA_DTYPE_FP32, 50, 8),
                                   coda_const_vector_of(frequency.data(), CODA_DTYPE_FP64, 4), 1.25),
            CODA_OK);
  EXPECT_EQ(check_bits("table", ConstMatrix(scaled_from_c.any_matrix()), ConstMatrix(scaled.any_matrix())), "");

  const Vec rstd(37, 0.75);
  std::vector<std::int64_t> position;
  for (std::int64_t m = 0; m < 37; ++m) position.push_back((5 * m) % 50);
  expect_same(
      DType::bf16,
      [&](Case& c) {
        c.draw_product();
        ops::gemm_norm_rope({.a = c.a,
                             .b = c.b,
                             .norm = {.rstd = c.vec(rstd, DType::fp32)},
                             .heads = {.q = 3,
                                       .k = 2,
                                       .v = 1,
                                       .head_dim = 8,
                                       .table = ConstMatrix(table.any_matrix()),
                                       .position = c.indices(position, false)},
                             .out = c.out("out", 37, 48)});
      },
      [&](Case& c) {
        c.draw_product();
        coda_gemm_norm_rope_args args = coda_gemm_norm_rope_defaults();
        args.a = c_of(c.a);
        args.b = c_of(c.b);
        args.norm.rstd = c_of(c.vec(rstd, DType::fp32));
        args.heads.q = 3;
        args.heads.k = 2;
        args.heads.v = 1;
        args.heads.head_dim = 8;
        args.heads.table = coda_const_matrix_of(table.data(), CODA_DTYPE_FP32, 50, 8);
        args.heads.position = c_of(c.indices(position, false));
        args.out = c_of(c.out("out", 37, 48));
        return coda_gemm_norm_rope(&args);
      });
}

TEST(CCalls, TheLossAndItsOptionsGoThrough) {
  std::vector<std::int64_t> target;
  for (std::int64_t m = 0; m < 37; ++m) target.push_back(m % 5 == 0 ? -7 : (11 * m) % 48);
  expect_same(
      DType::fp32,
      [&](Case& c) {
        c.draw_product();
        ops::linear_cross_entropy({.a = c.a,
                                   .weight = c.b,
                                   .transform = {.scale = 0.75, .cap = 4},
                                   .target = c.indices(target, true),
                                   .options = {.label_smoothing = 0.125, .z_loss = 0.25, .ignore_index = -7},
                                   .lse = c.out_vec("lse", 37, DType::fp32),
                                   .loss = c.out_vec("loss", 37, DType::fp32)});
      },
      [&](Case& c) {
        c.draw_product();
        coda_linear_cross_entropy_args args = coda_linear_cross_entropy_defaults();
        args.a = c_of(c.a);
        args.weight = c_of(c.b);
        args.transform.scale = 0.75;
        args.transform.cap = 4;
        args.target = c_of(c.indices(target, true));
        args.options.label_smoothing = 0.125;
        args.options.z_loss = 0.25;
        args.options.ignore_index = -7;
        args.lse = c_of(c.out_vec("lse", 37, DType::fp32));
        args.loss = c_of(c.out_vec("loss", 37, DType::fp32));
        return coda_linear_cross_entropy(&args);
      });
}

TEST(CCalls, DenseViewsAreMadeInOneLine) {
  const std::vector<float> x{1, 2, 2};
  double norm = -1;
  coda_squared_norm_args args = coda_squared_norm_defaults();
  args.x = coda_const_vector_of(x.data(), CODA_DTYPE_FP32, 3);
  args.out = coda_vector_of(&norm, CODA_DTYPE_FP64, 1);
  EXPECT_EQ(coda_squared_norm(&args), CODA_OK) << message();
  EXPECT_EQ(norm, 9);
  const coda_matrix view = coda_matrix_of(&norm, CODA_DTYPE_FP64, 1, 7);
  EXPECT_EQ(view.pitch, 7);
}

coda_heads c_of(const ops::Heads& h) { return {h.q, h.k, h.v, h.head_dim, c_of(h.table), c_of(h.position)}; }
coda_block_weights c_of(const ops::BlockWeights& w) {
  return {c_of(w.out), c_of(w.post_norm), c_of(w.gate_up), c_of(w.down)};
}
coda_qkv_weights c_of(const ops::QkvWeights& w) {
  return {c_of(w.input_norm), c_of(w.qkv), c_of(w.q_norm), c_of(w.k_norm)};
}

/// A layer by C, in memory of the caller's, of as many bytes as C says, counting what it moves.
void run_layer_of_c(const ops::Block& call, const LayerDims& d, std::int64_t* moved) {
  coda_layer_shape shape = coda_layer_shape_defaults();
  shape.tokens = d.m;
  shape.hidden = d.hidden;
  shape.ffn = d.ffn;
  shape.heads = c_of(call.heads);
  shape.qk_norm = d.qk_norm;
  std::int64_t bytes = -1;
  ASSERT_EQ(coda_block_workspace_bytes(&shape, &bytes), CODA_OK) << message();
  Guarded<bf16> memory(1, bytes / 2);

  coda_block_args args = coda_block_defaults();
  args.attended = c_of(call.attended);
  args.x = c_of(call.x);
  args.weights = c_of(call.weights);
  args.next = c_of(call.next);
  args.heads = c_of(call.heads);
  args.function = static_cast<coda_glu>(call.function);
  args.eps = call.eps;
  args.head_eps = call.head_eps;
  args.x_mid = c_of(call.x_mid);
  args.rstd_mid = c_of(call.rstd_mid);
  args.preact = c_of(call.preact);
  args.x_next = c_of(call.x_next);
  args.rstd_next = c_of(call.rstd_next);
  args.qkv_preact = c_of(call.qkv_preact);
  args.qkv = c_of(call.qkv);
  args.workspace = {memory.data(), static_cast<std::size_t>(bytes)};
  args.traffic = moved;
  EXPECT_EQ(coda_block(&args), CODA_OK) << message();
  EXPECT_EQ(memory.guard_damage("workspace"), "");

  args.workspace.bytes -= 64;
  EXPECT_EQ(coda_block(&args), CODA_INVALID_ARGUMENT);
  EXPECT_TRUE(begins(message(), "block: workspace: ")) << message();
}

TEST(CCalls, ALayerTakesItsWorkspaceAndCountsItsTraffic) {
  const LayerDims d{.m = 21, .hidden = 40, .ffn = 56, .heads = {4, 1, 1, 12}, .qk_norm = true, .glu = ops::Glu::reglu};
  Case x = layer_case(DType::bf16, d, base_seed()), y = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers of_x(x.random, d, DType::bf16), of_y(y.random, d, DType::bf16);

  ops::Block cpp = block_call(x, of_x);
  Traffic moved;
  cpp.traffic = &moved;
  ops::block(cpp);

  std::int64_t moved_by_c = 1000;  // is added to
  run_layer_of_c(block_call(y, of_y), d, &moved_by_c);
  EXPECT_EQ(moved_by_c, 1000 + moved.bytes());
  EXPECT_EQ(x.difference(y), "");
}

TEST(CCalls, BytesAndTilesAreThoseOfCpp) {
  EXPECT_EQ(coda_tiles_n(1000, CODA_BACKEND_CPU), ops::tiles_n(1000, ops::Backend::cpu));
  EXPECT_EQ(coda_tiles_n(1000, CODA_BACKEND_SM90), ops::tiles_n(1000, ops::Backend::sm90));
  EXPECT_EQ(coda_tiles_m(1000, CODA_BACKEND_CPU), ops::tiles_m(1000, ops::Backend::cpu));
  EXPECT_EQ(coda_tiles_m(1000, CODA_BACKEND_SM90), ops::tiles_m(1000, ops::Backend::sm90));
  std::int64_t tiles = 0;
  EXPECT_EQ(coda_head_tiles_n(960, 96, CODA_BACKEND_SM90, &tiles), CODA_OK);
  EXPECT_EQ(tiles, ops::head_tiles_n(960, 96, ops::Backend::sm90));
  EXPECT_EQ(coda_head_tiles_n(960, 0, CODA_BACKEND_SM90, &tiles), CODA_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "head_tiles_n: head_dim: expected at least 1 column, got 0");
  EXPECT_EQ(tiles, ops::head_tiles_n(960, 96, ops::Backend::sm90)) << "a call that fails leaves its result alone";
  EXPECT_EQ(coda_head_tiles_n(960, 96, CODA_BACKEND_SM90, nullptr), CODA_INVALID_ARGUMENT);
  EXPECT_EQ(message(), "head_tiles_n: result: expected a pointer, got a null pointer");

  coda_layer_shape c = coda_layer_shape_defaults();
  c.dtype = CODA_DTYPE_FP16;
  c.tokens = 300;
  c.hidden = 128;
  c.ffn = 320;
  c.vocabulary = 1000;
  c.heads.q = 4;
  c.heads.k = c.heads.v = 2;
  c.heads.head_dim = 32;
  c.qk_norm = true;
  c.label_smoothing = true;
  c.logit_rows = 100;
  c.backend = CODA_BACKEND_SM90;
  const ops::LayerShape cpp{.dtype = DType::fp16,
                            .tokens = 300,
                            .hidden = 128,
                            .ffn = 320,
                            .vocabulary = 1000,
                            .heads = {.q = 4, .k = 2, .v = 2, .head_dim = 32},
                            .qk_norm = true,
                            .label_smoothing = true,
                            .logit_rows = 100,
                            .backend = ops::Backend::sm90};
  const auto same = [&](coda_status (*of_c)(const coda_layer_shape*, int64_t*), auto* of_cpp, const char* name) {
    std::int64_t bytes = -1;
    EXPECT_EQ(of_c(&c, &bytes), CODA_OK) << message();
    EXPECT_EQ(bytes, of_cpp(cpp)) << name;
    EXPECT_EQ(of_c(nullptr, &bytes), CODA_INVALID_ARGUMENT);
    EXPECT_EQ(message(), std::string(name) + ": s: expected a struct, got a null pointer");
  };
  same(coda_block_pre_workspace_bytes, ops::block_pre_workspace_bytes, "block_pre_workspace_bytes");
  same(coda_block_workspace_bytes, ops::block_workspace_bytes, "block_workspace_bytes");
  same(coda_block_post_workspace_bytes, ops::block_post_workspace_bytes, "block_post_workspace_bytes");
  same(coda_block_pre_backward_workspace_bytes, ops::block_pre_backward_workspace_bytes,
       "block_pre_backward_workspace_bytes");
  same(coda_block_backward_workspace_bytes, ops::block_backward_workspace_bytes, "block_backward_workspace_bytes");
  same(coda_block_post_backward_workspace_bytes, ops::block_post_backward_workspace_bytes,
       "block_post_backward_workspace_bytes");
  same(coda_block_saved_bytes, ops::block_saved_bytes, "block_saved_bytes");
  same(coda_block_saved_bytes_unfused, ops::block_saved_bytes_unfused, "block_saved_bytes_unfused");
}

TEST(CCalls, AMessageIsItsThreadsAndStaysUntilTheNextOne) {
  coda_gemm_args args = coda_gemm_defaults();
  args.layout = 3;
  ASSERT_EQ(coda_gemm(&args), CODA_INVALID_ARGUMENT);
  const std::string mine = message();
  EXPECT_NE(mine, "");
  std::thread([&] {
    EXPECT_EQ(message(), "") << "a thread that has called nothing";
    EXPECT_EQ(coda_cast(nullptr), CODA_INVALID_ARGUMENT);
    EXPECT_NE(message(), mine);
  }).join();
  float table[2];
  ASSERT_EQ(coda_rotary_table(coda_matrix_of(table, CODA_DTYPE_FP32, 1, 2), 10000), CODA_OK);
  EXPECT_EQ(message(), mine);
}

TEST(CCalls, WhateverIsThrownIsAStatus) {
  const auto status_of = [](auto&& f) { return c::guarded("operation", f); };
  EXPECT_EQ(status_of([] {}), CODA_OK);
  EXPECT_EQ(status_of([] { throw Error(Status::io_error, "operation: file: gone"); }), CODA_IO_ERROR);
  EXPECT_EQ(message(), "operation: file: gone");
  EXPECT_EQ(status_of([] { throw Error(Status::device_error, ""); }), CODA_DEVICE_ERROR);
  EXPECT_EQ(status_of([] { throw Error(Status::interrupted, ""); }), CODA_INTERRUPTED);
  EXPECT_EQ(status_of([] { throw std::bad_alloc(); }), CODA_OUT_OF_MEMORY);
  EXPECT_EQ(message(), "operation: expected enough memory of the host, got less");
  EXPECT_EQ(status_of([] { throw std::runtime_error("as it may be"); }), CODA_INTERNAL_ERROR);
  EXPECT_EQ(message(), "operation: as it may be");
  EXPECT_EQ(status_of([] { throw 7; }), CODA_INTERNAL_ERROR);
  EXPECT_EQ(status_of([] { throw Error(Status::unsupported, std::string(5000, 'x')); }), CODA_UNSUPPORTED);
  EXPECT_EQ(message(), std::string(1023, 'x'));
}

TEST(CCalls, WhatThisMachineHasIsTold) {
  EXPECT_STREQ(coda_version(), build_info().version);
  const int of_headers[] = {CODA_VERSION_MAJOR, CODA_VERSION_MINOR, CODA_VERSION_PATCH};
  EXPECT_EQ(fmt::format("{}", fmt::join(of_headers, ".")), coda_version()) << "coda/c/core.h and CMakeLists.txt";
  std::string why;
  if (sm90::available(&why)) {
    EXPECT_EQ(coda_sm90_available(), CODA_OK);
  } else {
    EXPECT_EQ(coda_sm90_available(), CODA_UNSUPPORTED);
    EXPECT_EQ(message(), "sm90_available: " + why);
  }
}

}  // namespace
}  // namespace coda::test
