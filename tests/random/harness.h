// Gives a random program memory for each of its ports, runs it, and compares what it wrote with what plain_tile.h makes
// of the same program on doubles.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/sm90/run.h"
#include "tests/gpu/device.h"
#include "tests/gpu/image.h"
#include "tests/random/plain_tile.h"
#include "tests/support/random.h"

namespace coda::test {

/// Sizes of a call, and what the ports of heads say.
struct RandomCall {
  std::int64_t m, n, k;
  coda::Layout layout = coda::Layout::nt;
  int head_dim = 32;
  std::int64_t pad = 0;  // columns by which each matrix's rows are longer
  std::uint64_t seed = 1;

  std::int64_t head_columns() const { return n / head_dim / 2 * head_dim; }
  std::int64_t q_columns() const { return head_columns() / head_dim / 2 * head_dim; }
};

/// A matrix or a vector of a port.
struct Piece {
  enum Role : std::uint8_t { kInput, kIndex, kOutput, kSparse /* an output of which not all is written */ };
  DType type;
  std::int64_t rows, cols;
  Role role;
  bool exact = true;   // an integer whatever the order of its sums
  bool dense = false;  // rows follow each other
};

/// What there is of a port, and how it is given its memory.
struct Ports {
  static constexpr std::int64_t kTableRows = 37;
  RandomCall call;
  Extents extents;

  template <class T>
  std::vector<Piece> pieces(const ColVector<T>&) const {
    return {{dtype_of<std::remove_const_t<T>>, call.m, 1, std::is_const_v<T> ? Piece::kInput : Piece::kOutput}};
  }
  template <class T, Width W>
  std::vector<Piece> pieces(const RowVector<T, W>&) const {
    return {
        {dtype_of<std::remove_const_t<T>>, extents.columns(W), 1, std::is_const_v<T> ? Piece::kInput : Piece::kOutput}};
  }
  template <class T, Width W>
  std::vector<Piece> pieces(const TileLoad<T, W>&) const {
    return {{dtype_of<T>, call.m, extents.columns(W), Piece::kInput}};
  }
  template <class T, Width W>
  std::vector<Piece> pieces(const TileStore<T, W>&) const {
    return {{dtype_of<T>, call.m, extents.columns(W), Piece::kOutput}};
  }
  template <class T>
  std::vector<Piece> pieces(const GatherLoad<T>&) const {
    return {{dtype_of<T>, kTableRows, call.n, Piece::kInput}, {DType::int32, call.m, 1, Piece::kIndex}};
  }
  std::vector<Piece> pieces(const OneHot&) const { return {{DType::int64, call.m, 1, Piece::kIndex}}; }
  template <class A>
  std::vector<Piece> pieces(const RotaryTable<A>&) const {
    return {{dtype_of<A>, kTableRows, call.head_dim, Piece::kInput, true, true},
            {DType::int32, call.m, 1, Piece::kIndex}};
  }
  template <class T>
  std::vector<Piece> pieces(const HeadVector<T>&) const {
    return {{dtype_of<T>, call.head_dim, 1, Piece::kInput}, {dtype_of<T>, call.head_dim, 1, Piece::kInput}};
  }
  template <class A, int Slot>
  std::vector<Piece> pieces(const HeadMean<A, Slot>&) const {
    return {};
  }
  template <class Op, class A>
  std::vector<Piece> pieces(const ReduceN<Op, A>&) const {
    return {{dtype_of<A>, call.m, extents.tiles_n, Piece::kOutput}};
  }
  template <class Op, class A>
  std::vector<Piece> pieces(const ReduceM<Op, A>&) const {
    return {{dtype_of<A>, extents.tiles_m, call.n, Piece::kOutput}};
  }
  template <class A>
  std::vector<Piece> pieces(const MomentsN<A>&) const {
    const Piece part{dtype_of<A>, call.m, extents.tiles_n, Piece::kOutput, false};
    return {part, part};
  }
  template <class A>
  std::vector<Piece> pieces(const OnlineLse<A>&) const {
    const Piece part{dtype_of<A>, call.m, extents.tiles_n, Piece::kOutput, false};
    return {part, part};
  }
  template <class A>
  std::vector<Piece> pieces(const TargetSelect<A>&) const {
    return {{DType::int64, call.m, 1, Piece::kIndex}, {dtype_of<A>, call.m, 1, Piece::kSparse}};
  }

  template <class T>
  static Elements<T> elements(const Matrix& m) {
    return static_cast<T*>(m.data);
  }
  template <class T>
  void attach(ColVector<T>& p, const Matrix* m) const {
    p.data = elements<T>(*m);
  }
  template <class T, Width W>
  void attach(RowVector<T, W>& p, const Matrix* m) const {
    p.data = elements<T>(*m);
  }
  template <class T, Width W>
  void attach(TileLoad<T, W>& p, const Matrix* m) const {
    p = m->as<T>();
  }
  template <class T, Width W>
  void attach(TileStore<T, W>& p, const Matrix* m) const {
    p = m->as<T>();
  }
  template <class T>
  void attach(GatherLoad<T>& p, const Matrix* m) const {
    p.data = m[0].as<T>().data, p.pitch = m[0].pitch, p.rows = kTableRows;
    p.index = static_cast<const std::int32_t*>(m[1].data);
  }
  void attach(OneHot& p, const Matrix* m) const {
    p.index = static_cast<const std::int64_t*>(m->data), p.first_column = 3;
  }
  template <class A>
  void attach(RotaryTable<A>& p, const Matrix* m) const {
    p.table = static_cast<const A*>(m[0].data), p.position = static_cast<const std::int32_t*>(m[1].data);
    p.columns = call.head_columns(), p.head_dim = call.head_dim, p.rows = kTableRows;
  }
  template <class T>
  void attach(HeadVector<T>& p, const Matrix* m) const {
    p.q = elements<const T>(m[0]), p.k = elements<const T>(m[1]);
    p.q_columns = call.q_columns(), p.columns = call.head_columns(), p.head_dim = call.head_dim;
  }
  template <class A, int Slot>
  void attach(HeadMean<A, Slot>& p, const Matrix*) const {
    p.columns = call.head_columns(), p.head_dim = call.head_dim, p.eps = 2, p.otherwise = 3;
  }
  template <class Op, class A>
  void attach(ReduceN<Op, A>& p, const Matrix* m) const {
    p = m->as<A>();
  }
  template <class Op, class A>
  void attach(ReduceM<Op, A>& p, const Matrix* m) const {
    p = m->as<A>();
  }
  template <class A>
  void attach(MomentsN<A>& p, const Matrix* m) const {
    p = {m[0].as<A>(), m[1].as<A>()};
  }
  template <class A>
  void attach(OnlineLse<A>& p, const Matrix* m) const {
    p = {m[0].as<A>(), m[1].as<A>()};
  }
  template <class A>
  void attach(TargetSelect<A>& p, const Matrix* m) const {
    p.index = static_cast<const std::int64_t*>(m[0].data), p.data = elements<A>(m[1]), p.first_column = 3;
  }
};

template <class P>
inline constexpr bool kHasHeadMeans = count_ports<HeadMean<float, 0>, P>() + count_ports<HeadMean<double, 0>, P>() > 0;

/// A program with memory for all of its ports and for the operands.
template <class P>
class Bound {
 public:
  /// `t`: the operands' type.
  Bound(const Ports& ports, ops::Backend backend, DType t) : ports_(ports), image_(backend) {
    const RandomCall& call = ports.call;
    const bool a_is_km = call.layout == coda::Layout::tn, b_is_kn = call.layout != coda::Layout::nt;
    add({t, a_is_km ? call.k : call.m, a_is_km ? call.m : call.k, Piece::kInput});
    add({t, b_is_kn ? call.k : call.n, b_is_kn ? call.n : call.k, Piece::kInput});
    for_each_port(program_, [&](const auto& port) {
      for (const Piece& piece : ports_.pieces(port)) add(piece);
    });
    image_.allocate();
    Random random(call.seed);
    for (std::size_t i = 0; i < pieces_.size(); ++i) fill(static_cast<int>(i), random);
    image_.upload(nullptr);
    int next = 2;
    for_each_port(program_, [&](auto& port) {
      const auto count = static_cast<int>(ports_.pieces(port).size());
      std::vector<Matrix> memory;
      for (int i = 0; i < count; ++i) memory.push_back(image_.matrix(next + i));
      ports_.attach(port, memory.data());
      next += count;
    });
  }

  const P& program() const { return program_; }
  Matrix a() const { return image_.matrix(0); }
  Matrix b() const { return image_.matrix(1); }
  gpu::Image& image() { return image_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void add(const Piece& piece) {
    pieces_.push_back(piece);
    const bool dense = piece.dense || piece.cols == 1;
    image_.add({.type = piece.type,
                .rows = piece.rows,
                .cols = piece.cols,
                .pitch = dense ? piece.cols : piece.cols + ports_.call.pad,
                .output = piece.role == Piece::kOutput || piece.role == Piece::kSparse,
                .filled = piece.role == Piece::kSparse});
  }
  void fill(int i, Random& random) {
    const Piece& piece = pieces_[static_cast<std::size_t>(i)];
    const RandomCall& call = ports_.call;
    if (piece.role == Piece::kOutput) return;
    if (piece.role == Piece::kIndex) {
      // int32: rows of a table. int64: columns of the product, and some behind it.
      const std::int64_t most = piece.type == DType::int32 ? Ports::kTableRows - 1 : call.n + 5;
      return image_.set(i, integer_mat(random, piece.rows, piece.cols, 0, most));
    }
    const int most = i < 2 ? 1 : 5;  // operands are small, so that products are
    image_.set(i, integer_mat(random, piece.rows, piece.cols, -most, most));
  }

  Ports ports_;
  P program_ = {};
  std::vector<Piece> pieces_;
  gpu::Image image_;
};

/// Empty, or the first element that differs. `heads`: means of heads are no integers, and what is made of them is
/// compared to three digits.
inline std::string compare_random(gpu::Image& got, gpu::Image& expected, const std::vector<Piece>& pieces, bool heads) {
  const std::string fault = got.fault([](int i) { return fmt::format("piece {}", i - 2); });
  if (!fault.empty()) return fault;
  for (int i = 2; i < got.blocks(); ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    if (piece.role != Piece::kOutput && piece.role != Piece::kSparse) continue;
    const Mat x = got.get(i), y = expected.get(i);
    const auto round = reference::Round::to(piece.type);
    for (std::int64_t m = 0; m < x.rows; ++m) {
      for (std::int64_t n = 0; n < x.cols; ++n) {
        const double want = round(y(m, n));
        const double allowed = heads         ? 8e-3 * std::max(1.0, std::abs(want))
                               : piece.exact ? 0
                                             : 1e-4 * std::max(1.0, std::abs(want));
        if (x(m, n) == want || std::abs(x(m, n) - want) <= allowed) continue;
        return fmt::format("piece {} ({}x{} {}): at ({}, {}) {} where {} is right", i - 2, x.rows, x.cols,
                           name_of(piece.type), m, n, x(m, n), want);
      }
    }
  }
  return "";
}

/// Program<double, double> by the plain tile; a and b are integers.
template <class Reference>
void run_reference(Bound<Reference>& bound, const Ports& ports, std::int64_t tile_m, std::int64_t tile_n) {
  const RandomCall& call = ports.call;
  const Mat a = bound.image().get(0), b = bound.image().get(1);
  const Mat product = reference::product({a, b, reference::layout_of(call.layout)});
  run_plainly(bound.program(), product, {call.m, call.n, tile_m, tile_n});
}

/// Empty, or how the program on T failed on the CPU.
template <class T, class P, class Reference>
std::string check_random_on_cpu(const RandomCall& call) {
  const std::int64_t tile_n = kHasHeadMeans<P> ? cpu::tile_n_for_heads(call.head_dim) : cpu::kTileN;
  const Ports ports{call, {call.m, call.n, cpu::tiles_m(call.m), ceil_div(call.n, tile_n)}};
  Bound<P> bound(ports, ops::Backend::cpu, dtype_of<T>);
  Bound<Reference> reference(ports, ops::Backend::cpu, DType::fp64);
  run_reference(reference, ports, cpu::kTileM, tile_n);
  coda::gemm(bound.a().template as<const T>(), bound.b().template as<const T>(), bound.program(), call.layout);
  return compare_random(bound.image(), reference.image(), bound.pieces(), kHasHeadMeans<P>);
}

/// Empty, or how it failed on Hopper: as the library chooses, in a fused kernel where one takes the call, and behind
/// cuBLASLt's product.
template <class T, class P, class Reference>
std::string check_random_on_hopper(const RandomCall& call) {
  const std::int64_t tile_n = kHasHeadMeans<P> ? sm90::tile_n_for_heads(call.head_dim) : sm90::kTileN;
  const Ports ports{call, {call.m, call.n, sm90::tiles_m(call.m), ceil_div(call.n, tile_n)}};
  Bound<Reference> reference(ports, ops::Backend::cpu, DType::fp64);
  run_reference(reference, ports, sm90::kTileM, tile_n);
  for (const sm90::Way way : {sm90::Way::automatic, sm90::Way::fused, sm90::Way::unfused}) {
    Bound<P> bound(ports, ops::Backend::sm90, dtype_of<T>);
    const ChosenWay chosen(way);
    sm90::Product<T, P>::run(bound.a(), bound.b(), call.layout, bound.program(), nullptr, "random");
    bound.image().download(nullptr);
    const std::string failure = compare_random(bound.image(), reference.image(), bound.pieces(), kHasHeadMeans<P>);
    if (!failure.empty()) return std::string(sm90::name_of(way)) + ": " + failure;
  }
  return "";
}

}  // namespace coda::test
