// A last round of tiles that is split along K: thread blocks leave sums for others in memory of the launch's own, which
// is used again and again.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "coda/backend/sm90/workspace.h"
#include "coda/ops/ops.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"
#include "tests/support/random.h"

namespace coda::test::gpu {
namespace {

// 72 tiles of 23 steps, to 66 clusters on 132 multiprocessors.
constexpr Shape kShape{1100, 1800, 1416};

/// Whether memory for a kernel on that stream is what another kernel on it has now.
bool is_kept(void* stream, std::size_t bytes = 4096) {
  return sm90::Workspace::of_kernel(4096, stream, "test").data() ==
         sm90::Workspace::of_kernel(bytes, stream, "test").data();
}

using KernelMemory = OnHopper;

// First in the file, for the first streams of a process are those that keep memory.
TEST_F(KernelMemory, StaysWithTheFirstStreamsThatAskForIt) {
  constexpr std::size_t kMost = sm90::Workspace::kKeptBytes;
  std::set<void*> seen{sm90::Workspace::of_kernel(4096, nullptr, "test").data()};
  EXPECT_TRUE(is_kept(nullptr)) << "of the default stream";
  for (int i = 1; i < sm90::Workspace::kStreams; ++i) {
    const Stream stream;  // gone behind its turn, and so its handle may be the next one's
    EXPECT_TRUE(seen.insert(sm90::Workspace::of_kernel(4096, stream.get(), "test").data()).second) << "stream " << i;
    EXPECT_TRUE(is_kept(stream.get(), kMost)) << "stream " << i;
    const sm90::Workspace larger = sm90::Workspace::of_kernel(kMost + 1, stream.get(), "test");
    EXPECT_FALSE(seen.contains(larger.data())) << "stream " << i;
    const Graph graph(stream, [&] {
      const sm90::Workspace of_graph = sm90::Workspace::of_kernel(4096, stream.get(), "test");
      EXPECT_FALSE(seen.contains(of_graph.data())) << "captured on stream " << i;
    });
  }
  const Stream too_many;
  const sm90::Workspace one = sm90::Workspace::of_kernel(4096, too_many.get(), "test");
  EXPECT_FALSE(seen.contains(one.data()));
  EXPECT_FALSE(is_kept(too_many.get()));
  EXPECT_TRUE(is_kept(nullptr)) << "of the default stream, behind all the others";
}

class SplitRound : public OnHopper {
 protected:
  void SetUp() override {
    OnHopper::SetUp();
    if (IsSkipped()) return;
    const int multiprocessors = sm90::device_info().multiprocessors;
    const bool is_split = sm90::rounds_of(72, 23, multiprocessors).split.helpers > 0;
    if (!is_split && multiprocessors != 132) GTEST_SKIP() << "not split on " << multiprocessors << " multiprocessors";
    ASSERT_TRUE(is_split);
  }
};

/// A product and a bias in a fused kernel; its A may change between launches.
class Product {
 public:
  explicit Product(std::uint64_t seed) : random_(seed) {}

  void call(const Stream& stream) const {
    const ChosenWay fused(sm90::Way::fused);
    ops::gemm({.a = a_.matrix(),
               .b = b_.matrix(),
               .bias = bias_.vector(),
               .out = out_.matrix(),
               .on = {ops::Backend::sm90, stream.get()}});
  }
  void set_a(const Mat& a) { a_.set(a); }
  Mat drawn_a() { return normal_mat(random_, kShape.m, kShape.k, 1, DType::bf16); }
  void poison() { out_.poison(); }
  std::vector<unsigned char> bits() const { return out_.bits(); }

 private:
  Random random_;
  OnDevice<bf16> a_{normal_mat(random_, kShape.m, kShape.k, 1, DType::bf16)},
      b_{normal_mat(random_, kShape.n, kShape.k, 0.03, DType::bf16)},
      bias_{normal_mat(random_, 1, kShape.n, 1, DType::bf16)}, out_{kShape.m, kShape.n};
};

TEST_F(SplitRound, LeavesTheSameBitsOnStreamsThatOverlap) {
  constexpr int kStreams = sm90::Workspace::kStreams + 2;  // not all of them keep memory
  const Stream streams[kStreams];
  std::vector<std::unique_ptr<Product>> products;
  std::vector<std::vector<unsigned char>> alone;
  for (int i = 0; i < kStreams; ++i) {
    products.push_back(std::make_unique<Product>(70 + i));
    products.back()->call(streams[0]);
    streams[0].wait();
    alone.push_back(products.back()->bits());
  }
  // For each kernel that waits, compute-sanitizer's racecheck takes a gigabyte of the host's memory.
  const int repeats = small_only() ? 1 : 20, calls = small_only() ? 1 : 10;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (auto& product : products) product->poison();
    for (int call = 0; call < calls; ++call) {
      for (int i = 0; i < kStreams; ++i) products[static_cast<std::size_t>(i)]->call(streams[i]);
    }
    for (const Stream& stream : streams) stream.wait();
    for (std::size_t i = 0; i < kStreams; ++i) {
      ASSERT_TRUE(products[i]->bits() == alone[i]) << "stream " << i << ", repeat " << repeat;
    }
  }
}

/// A graph's launches have the same number and the same memory: what one left there must not be taken by the next.
TEST_F(SplitRound, BeginsAnewInEachReplay) {
  const Stream stream;
  Product product(80);
  std::vector<Mat> inputs{product.drawn_a(), product.drawn_a(), Mat(kShape.m, kShape.k, 0.0)};
  std::vector<std::vector<unsigned char>> expected;
  for (const Mat& a : inputs) {
    product.set_a(a), product.poison();
    product.call(stream), stream.wait();
    expected.push_back(product.bits());
  }
  ASSERT_FALSE(expected[0] == expected[1]);
  const Graph graph(stream, [&] { product.call(stream); });
  EXPECT_EQ(graph.kernels(), 1);
  for (int replay = 0; replay < 20; ++replay) {
    const std::size_t which = static_cast<std::size_t>(replay) % inputs.size();
    product.set_a(inputs[which]), product.poison();
    graph.launch(stream), stream.wait();
    ASSERT_TRUE(product.bits() == expected[which]) << "replay " << replay;
  }
}

}  // namespace
}  // namespace coda::test::gpu
