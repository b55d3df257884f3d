// Bad calls on Hopper: a named error before anything is launched, no byte written, and the next call works.
#include <fmt/core.h>

#include <cstddef>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/support/error_of.h"

namespace coda::test::gpu {
namespace {

class BadCalls : public OnHopper {};

template <class View>
void shift(View& x, std::int64_t bytes) {
  x.data = static_cast<std::byte*>(x.data) + bytes;
}
bool is_index(DType t) { return t == DType::int32 || t == DType::int64; }

struct Named {
  std::string what;
  Spoil spoil;
};

/// All that can be wrong with one argument alone.
std::vector<Named> spoils_of(const Problem& problem, Id id, const Image& image) {
  const Slot& s = problem.slot(id);
  std::vector<Named> all;
  const auto add = [&](const char* what, const auto& change) {
    all.push_back({s.name + ": " + what, {id, [change](Matrix& x) { change(x); }, [change](Vector& x) { change(x); }}});
  };
  add("another dtype", [](auto& x) { x.dtype = is_index(x.dtype) ? DType::bf16 : DType::int64; });
  add("one byte off", [](auto& x) { shift(x, 1); });
  const auto no_vector = [](Vector&) {};
  if (!s.packed) {
    all.push_back({s.name + ": negative rows", {id, [](Matrix& x) { x.rows = -1; }, no_vector}});
    if (image.block(id).rows > 1) {
      all.push_back({s.name + ": pitch below the width", {id, [](Matrix& x) { x.pitch = x.cols - 1; }, no_vector}});
    }
    // Any shape of this one makes a call.
    if (s.name != "partial") {
      all.push_back({s.name + ": one column less", {id, [](Matrix& x) { --x.cols; }, no_vector}});
    }
  } else if (s.cols == 1) {
    const auto no_matrix = [](Matrix&) {};
    all.push_back({s.name + ": negative size", {id, no_matrix, [](Vector& x) { x.size = -1; }}});
    all.push_back({s.name + ": one value less", {id, no_matrix, [](Vector& x) { --x.size; }}});
  }
  if (s.output && !s.packed && id > 0) {
    void* operand = image.matrix(0).data;
    all.push_back({s.name + ": over an operand", {id, [operand](Matrix& x) { x.data = operand; }, no_vector}});
  }
  return all;
}

TEST_F(BadCalls, AreNamedAndLaunchNothingAndTheNextCallWorks) {
  const Stream stream;
  int count = 0, named = 0, launched = 0, good_after = 0;
  for (const Program& program : programs()) {
    const Options options{.layout = program.natural, .whole_chunks = true, .everything = true, .seed = 7};
    const Problem problem = draw(program, program.name == std::string("cast") ? 1 : 0, options, {140, 136, 24});
    Execution run(problem);
    run.once(stream.get());
    EXPECT_EQ(run.fault(), "");
    EXPECT_EQ(compare(problem, run.values(), expected_of(problem)), "");
    const auto good = run.bytes();
    const std::string first_call =
        program.name == std::string("linear_cross_entropy_backward") ? "linear_cross_entropy" : program.name;
    for (Id id = 0; id < std::ssize(problem.slots); ++id) {
      for (const Named& bad : spoils_of(problem, id, run.image())) {
        SCOPED_TRACE(problem.name + ": " + bad.what);
        ++count;
        run.reset(stream.get());
        run.fetch(stream.get());
        const auto before = run.bytes();
        const std::string text = error_of([&] { run.call(stream.get(), &bad.spoil); });
        const bool complete = text.find(": expected") != std::string::npos && text.find("got ") != std::string::npos;
        EXPECT_TRUE(complete) << text;
        named += complete;
        // Where a problem makes several calls, a later one may be the one that refuses: the first has run by then.
        if (text.rfind(first_call + ":", 0) == 0) {
          run.fetch(stream.get());
          const bool nothing =
              run.bytes() == before && nodes_enqueued(stream, [&] { run.call(stream.get(), &bad.spoil); }) == 0;
          EXPECT_TRUE(nothing) << "something was launched";
          launched += !nothing;
        }
        run.once(stream.get());
        EXPECT_TRUE(run.bytes() == good) << "the next call has other results";
        good_after += run.bytes() == good;
      }
    }
  }
  EXPECT_GE(count, 500);
  fmt::print("bad calls: {}, {} named errors, {} launched something, {} good calls after them\n", count, named,
             launched, good_after);
}

/// Of every program: a kernel of each kind, and cuBLASLt's.
TEST_F(BadCalls, OfTheApplicationAreNotTakenForTheNextCalls) {
  const auto check = [](const Program& program, const Shape& shape) {
    SCOPED_TRACE(program.name);
    const Options options{.layout = program.natural, .whole_chunks = true, .seed = 7};
    for (const Route& route : kRoutes) {
      Execution run(draw(program, 0, options, shape), route);
      run.reset(nullptr);
      leave_an_error();
      EXPECT_EQ(error_of([&] { run.call(nullptr); }), "");
      forget_errors();
      sm90::synchronize();
    }
  };
  for (const Program& program : programs()) {
    check(program, {140, 136, 24});
    if (std::string_view(program.name) == "embedding_backward") check(program, {20000, 8, 24});  // CUB sorts as many
  }
}

class Plain : public BadCalls {
 protected:
  static constexpr std::int64_t kSize = 64;
  void SetUp() override {
    BadCalls::SetUp();
    if (IsSkipped()) return;
    for (sm90::DeviceBuffer* x : {&a_, &b_, &out_}) *x = sm90::DeviceBuffer(kSize * kSize * 8), x->fill(0);
  }
  Matrix matrix(const sm90::DeviceBuffer& x, DType t) const { return {x.data(), t, kSize, kSize}; }
  ops::Gemm call(DType t) const {
    return {.a = matrix(a_, t), .b = matrix(b_, t), .out = matrix(out_, t), .on = {ops::Backend::sm90, nullptr}};
  }
  sm90::DeviceBuffer a_, b_, out_;
};

TEST_F(Plain, TypesThatHopperDoesNotMultiplyAreRefused) {
  for (const DType t : {DType::fp32, DType::fp64}) {
    const std::string text = error_of([&] { ops::gemm(call(t)); });
    EXPECT_NE(text.find("gemm"), std::string::npos) << text;
    EXPECT_NE(text.find(name_of(t)), std::string::npos) << text;
    EXPECT_NE(text.find("sm90"), std::string::npos) << text;
  }
  EXPECT_EQ(error_of([&] { ops::gemm(call(DType::bf16)); }), "");
  sm90::synchronize();
}

/// These do something else ahead of their first product.
TEST_F(Plain, TypesThatHopperDoesNotMultiplyAreRefusedBeforeTheLossEnqueuesAnything) {
  const Stream stream;
  for (const DType t : {DType::fp32, DType::fp64}) {
    const Vector target{a_.data(), DType::int32, kSize}, row{b_.data(), t, kSize}, lse{out_.data(), t, kSize};
    const ops::Target on{ops::Backend::sm90, stream.get()};
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"cross_entropy_backward",
         [&] {
           ops::cross_entropy_backward(
               {.preact = matrix(a_, t), .target = target, .lse = row, .dloss = row, .dz = matrix(out_, t), .on = on});
         }},
        {"linear_cross_entropy",
         [&] {
           ops::linear_cross_entropy(
               {.a = matrix(a_, t), .weight = matrix(b_, t), .target = target, .lse = lse, .on = on});
         }},
        {"linear_cross_entropy_backward",
         [&] {
           ops::linear_cross_entropy_backward({.a = matrix(a_, t),
                                               .weight = matrix(b_, t),
                                               .target = target,
                                               .lse = row,
                                               .dloss = row,
                                               .da = matrix(out_, t),
                                               .on = on});
         }},
    };
    for (const auto& [name, bad] : calls) {
      std::string text;
      EXPECT_EQ(nodes_enqueued(stream, [&] { text = error_of(bad); }), 0) << name;
      EXPECT_EQ(text.rfind(std::string(name) + ": on.backend: expected cpu for " + name_of(t), 0), 0u) << text;
    }
  }
}

TEST_F(Plain, LayoutsAndBackendsThatAreNoneAreRefused) {
  ops::Gemm bad = call(DType::bf16);
  bad.layout = static_cast<Layout>(7);
  EXPECT_EQ(error_of([&] { ops::gemm(bad); }).rfind("gemm: layout: expected nt, nn or tn, got 7", 0), 0u);
  bad = call(DType::bf16);
  bad.on.backend = static_cast<ops::Backend>(9);
  EXPECT_EQ(error_of([&] { ops::gemm(bad); }).rfind("gemm: on.backend: expected cpu or sm90, got 9", 0), 0u);
  bad = call(DType::bf16);
  bad.a.data = nullptr;
  EXPECT_EQ(error_of([&] { ops::gemm(bad); }).rfind("gemm: a: expected a matrix (64, 64), got a null pointer", 0), 0u);
}

/// The rotary table is read in pairs of fp32.
TEST_F(Plain, AMisalignedRotaryTableIsRefused) {
  ops::RopeBackward bad{.y = matrix(a_, DType::bf16),
                        .dy = matrix(b_, DType::bf16),
                        .heads = {.q = 1, .k = 0, .v = 0, .head_dim = kSize},
                        .dz = matrix(out_, DType::bf16),
                        .on = {ops::Backend::sm90, nullptr}};
  bad.heads.table = Matrix(static_cast<std::byte*>(a_.data()) + 8196, DType::fp32, kSize, kSize);
  const std::string text = error_of([&] { ops::rope_backward(bad); });
  EXPECT_EQ(text.rfind("rope_backward: heads.table: expected", 0), 0u) << text;
}

TEST_F(Plain, PointersOfTheHostAreRefused) {
  const std::vector<bf16> host(kSize * kSize);
  ops::Gemm bad = call(DType::bf16);
  bad.a = ConstMatrix(host.data(), DType::bf16, kSize, kSize);
  EXPECT_EQ(error_of([&] { ops::gemm(bad); }), "gemm: a: expected memory of the device, got host memory");
  EXPECT_EQ(error_of([&] { ops::gemm(call(DType::bf16)); }), "");
}

}  // namespace
}  // namespace coda::test::gpu
