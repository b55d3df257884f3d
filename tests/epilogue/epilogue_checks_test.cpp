// What a call of a program looks at before it runs: sizes, shapes of views, what cannot be absent.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "tests/support/error_of.h"

namespace coda::test {
namespace {

struct Copies {
  TileLoad<float> in = {};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    tile.store(out, tile.load(in));
  }
};

struct Heads {
  HeadMean<> mean = {};
  RotaryTable<> rope = {};
  template <class Tile>
  CODA_FN void first(Tile& tile, auto acc) const {
    tile.reduce(mean, acc);
  }
  template <class Tile>
  CODA_FN void operator()(Tile&, auto) const {}
};

TEST(Gemm, OfAProgramNamesWhichSizeIsBelowZeroAndAnUnknownLayout) {
  float x[4] = {};
  const auto error = [&](std::int64_t m, std::int64_t n, std::int64_t k, coda::Layout layout = coda::Layout::nt) {
    return error_of([&] { coda::gemm(MatrixOf<float>(x, m, k), MatrixOf<float>(x, n, k), Copies{}, layout); });
  };
  EXPECT_EQ(error(0, 2, 2), "");
  EXPECT_EQ(error(-1, 2, 2), "gemm: a: expected sizes of at least 0, got (-1, 2)");
  EXPECT_EQ(error(2, -3, 2), "gemm: b: expected sizes of at least 0, got (-3, 2)");
  EXPECT_EQ(error(2, 2, -1), "gemm: a: expected sizes of at least 0, got (2, -1)");
  EXPECT_EQ(error(2, 2, 2, static_cast<coda::Layout>(7)), "gemm: layout: expected nt, nn or tn, got 7");
}

TEST(Apply, NamesSizesBelowZero) {
  const auto error = [](std::int64_t m, std::int64_t n) {
    return error_of([&] { cpu::apply<float>(m, n, Copies{}); });
  };
  EXPECT_EQ(error(0, 5), "");
  EXPECT_EQ(error(-1, 5), "apply: M, N: expected sizes of at least 0, got -1, 5");
  EXPECT_EQ(error(5, -2), "apply: M, N: expected sizes of at least 0, got 5, -2");
}

TEST(Program, WithHeadsNamesOneEvenWidthOfThem) {
  const auto error = [](int mean, int rope) {
    return error_of([&] { cpu::apply<float>(1, 8, Heads{{.head_dim = mean}, {.head_dim = rope}}); });
  };
  EXPECT_EQ(error(4, 4), "");
  EXPECT_EQ(error(0, 4), "apply: program: expected one even head_dim in all of its ports, got 0");
  EXPECT_EQ(error(4, 3), "apply: program: expected one even head_dim in all of its ports, got 3");
  EXPECT_EQ(error(4, 8), "apply: program: expected one even head_dim in all of its ports, got 4 and 8");
  EXPECT_EQ(error(514, 514), "apply: program: expected a head_dim of at most 512, got 514");
}

/// Ports of matrices in each width.
struct Matrices {
  TileLoad<float, Width::Half> narrow = {};
  TileStore<float> same = {};
  TileStore<float, Width::Half> half = {};
  TileStore<float, Width::Double> twice = {};
  ReduceN<Sum> along = {};
  ReduceM<Sum> down = {};
  MomentsN<> moments = {};
  OnlineLse<> lse = {};
  template <class Tile>
  CODA_FN void operator()(Tile&, auto) const {}
};

TEST(Program, WhoseOutputsHaveAnotherShapeIsRefused) {
  const auto error = [](const auto& program) { return error_of([&] { cpu::apply<float>(2, 600, program); }); };
  float x[1];
  const auto of = [&](std::int64_t rows, std::int64_t cols) { return MatrixOf<float>(x, rows, cols); };
  const std::string expected = "apply: program: expected a ";
  EXPECT_EQ(error(Matrices{.same = of(2, 599)}), expected + "TileStore of shape (2, 600), got (2, 599)");
  EXPECT_EQ(error(Matrices{.same = of(1, 600)}), expected + "TileStore of shape (2, 600), got (1, 600)");
  EXPECT_EQ(error(Matrices{.same = of(3, 600)}), expected + "TileStore of shape (2, 600), got (3, 600)");
  EXPECT_EQ(error(Matrices{.same = {{x, 2, 600, 599}}}), expected + "TileStore of 600 columns, got a pitch of 599");
  EXPECT_EQ(error(Matrices{.along = of(2, 2)}), expected + "ReduceN of shape (2, 3), got (2, 2)");
  EXPECT_EQ(error(Matrices{.along = of(1, 3)}), expected + "ReduceN of shape (2, 3), got (1, 3)");
  EXPECT_EQ(error(Matrices{.down = of(2, 600)}), expected + "ReduceM of shape (1, 600), got (2, 600)");
  EXPECT_EQ(error(Matrices{.moments = {of(2, 2), of(2, 2)}}), expected + "MomentsN of shape (2, 3), got (2, 2)");
  EXPECT_EQ(error(Matrices{.lse = {of(1, 3), of(1, 3)}}), expected + "OnlineLse of shape (2, 3), got (1, 3)");
  const auto tall = [&] { cpu::apply<float>(257, 600, Matrices{.down = {{x, 2, 600, 300}}}); };
  EXPECT_EQ(error_of(tall), expected + "ReduceM of 600 columns, got a pitch of 300");
  EXPECT_EQ(error(Matrices{.half = of(2, 600)}), expected + "TileStore of shape (2, 300), got (2, 600)");
  EXPECT_EQ(error(Matrices{.twice = of(2, 600)}), expected + "TileStore of shape (2, 1200), got (2, 600)");
}

TEST(Program, OfPairsRefusesAnOddNumberOfColumns) {
  float x[8] = {};
  const auto error = [&](std::int64_t n, const Matrices& program) {
    return error_of([&] { cpu::apply<float>(2, n, program); });
  };
  const std::string expected = "apply: N: expected an even number, since a port is half as wide, got 5";
  EXPECT_EQ(error(5, Matrices{.narrow = MatrixOf<float>(x, 2, 2)}), expected);
  EXPECT_EQ(error(5, Matrices{.half = MatrixOf<float>(x, 2, 2)}), expected);
  EXPECT_EQ(error(4, Matrices{.half = MatrixOf<float>(x, 2, 2)}), "");
  EXPECT_EQ(error(5, Matrices{}), "") << "absent";
}

TEST(Program, WhoseInputsAreTooNarrowIsRefused) {
  float x[40] = {};
  const MatrixOf<float> near(x, 2, 20, 19), out(x, 2, 20);
  const auto error = [&](std::int64_t m, const MatrixOf<float>& in, const MatrixOf<float>& to) {
    return error_of([&] { cpu::apply<float>(m, 20, Copies{in, to}); });
  };
  EXPECT_EQ(error(2, near, out), "apply: program: expected a TileLoad of 20 columns, got a pitch of 19");
  EXPECT_EQ(error(1, {x, 1, 20, 19}, {x, 1, 20}), "");  // that of one row means nothing
  EXPECT_EQ(error(2, {x, 2, 19}, out), "apply: program: expected a TileLoad of shape (2, 20), got (2, 19)");
  EXPECT_EQ(error(2, {x, 1, 20}, out), "apply: program: expected a TileLoad of shape (2, 20), got (1, 20)");
  EXPECT_EQ(error(0, {x, 1, 20}, out), "") << "no rows: nothing is read";
  EXPECT_EQ(error(2, {nullptr, 1, 7}, out), "") << "absent, whatever its shape";
}

struct Vectors {
  ColVector<const float> column = {};
  RowVector<const float> row = {};
  RowVector<const float, Width::Half> half = {};
  ColVector<float> first_column = {};
  TargetSelect<> chosen = {};
  OneHot target = {};
  GatherLoad<float> gathered = {};
  RotaryTable<> rope = {.head_dim = 4};
  HeadVector<float> weight = {.head_dim = 4};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(first_column, acc * tile.load(column) * tile.load(row));
  }
};

TEST(Program, WhoseVectorsHaveAnotherSizeIsRefused) {
  constexpr std::int64_t kRows = 2, kColumns = 8;
  float x[kColumns] = {};
  const std::vector<float> three(3), empty;
  std::vector<float> written(3);
  const std::vector<std::int32_t> index(3);
  const std::vector<std::int64_t> wide(3);
  const auto error = [&](const auto& change) {
    Vectors program{.gathered = {.data = x, .pitch = kColumns, .rows = 1}};
    change(program);
    return error_of([&] { cpu::apply<float>(kRows, kColumns, program); });
  };
  const auto got = [](const std::string& expected) { return "apply: program: expected a " + expected + ", got 3"; };
  EXPECT_EQ(error([](Vectors&) {}), "");
  EXPECT_EQ(error([&](Vectors& p) { p.column = {three}; }), got("ColVector of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.row = {three}; }), got("RowVector of 8 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.half = {three}; }), got("RowVector of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.first_column = {written}; }), got("ColVector of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.chosen.data = written; }), got("TargetSelect of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.chosen.index = index; }), got("TargetSelect's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.target.index = wide; }), got("OneHot's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.gathered.index = index; }), got("GatherLoad's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.rope.position = wide; }), got("RotaryTable's position of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.weight.q = three; }), got("HeadVector's q of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.weight.k = three; }), got("HeadVector's k of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.column = {three.data()}; }), "") << "a bare pointer tells no size";
  EXPECT_EQ(error([&](Vectors& p) { p.column = {VectorOf<const float>()}; }), "") << "absent";
  EXPECT_EQ(error([&](Vectors& p) { p.column = {empty}; }),
            "apply: program: expected a ColVector of 2 elements, got 0");
}

TEST(Program, TakesVectorsAsPointersViewsArraysOrContainers) {
  std::vector<float> writable = {1, 2, 3, 4};
  const std::vector<float> values = writable;
  float array[4] = {1, 2, 3, 4};
  const float const_array[4] = {1, 2, 3, 4};
  const auto check = [](const Elements<const float>& elements, std::int64_t size) {
    EXPECT_EQ(elements[2], 3);
    EXPECT_EQ(elements.size, size);
  };
  check(values.data(), kUnknownSize), check(writable.data(), kUnknownSize);
  check(VectorOf<const float>(values.data(), 4), 4), check(VectorOf<float>(writable.data(), 4), 4);
  check(values, 4), check(writable, 4), check(array, 4), check(const_array, 4);
  check(std::span(writable).first(3), 3), check(Elements<float>(writable), 4);
  EXPECT_EQ(Elements<float>(array).size, 4);
  EXPECT_EQ(Elements<float>(nullptr).size, kUnknownSize);
  static_assert(!std::is_constructible_v<Elements<float>, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<Elements<const float>, std::vector<double>&>);
  static_assert(!std::is_constructible_v<Elements<const float>, std::vector<float>>, "it would be gone");
}

TEST(Program, TakesIndicesAsPointersViewsArraysOrContainersOfInt32AndInt64) {
  const std::array<std::int64_t, 4> wide = {3, 2, 1, 0};
  const std::vector<std::int32_t> narrow(wide.begin(), wide.end());
  const std::int32_t const_array[4] = {3, 2, 1, 0};
  const auto check = [](const IndexVector& index, bool is_wide, std::int64_t size) {
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(index[i], 3 - i);
    EXPECT_EQ(index.wide, is_wide);
    EXPECT_EQ(index.size, size);
  };
  check(wide.data(), true, kUnknownSize), check(narrow.data(), false, kUnknownSize);
  check(VectorOf(wide.data(), 4), true, 4), check(VectorOf(narrow.data(), 4), false, 4);
  check(wide, true, 4), check(narrow, false, 4), check(const_array, false, 4);
  check(std::span(narrow).first(3), false, 3);
  EXPECT_EQ(IndexVector()[7], 7) << "a row's own number";
  static_assert(!std::is_constructible_v<IndexVector, std::vector<float>&>);
}

TEST(Program, OnAnOperandThatIsNoneOrWhoseRowsOverlapIsRefused) {
  const auto check = [](const auto& with) {
    for (const bool is_a : {true, false}) {
      using T = std::remove_cvref_t<decltype(with)>;
      T x[12] = {};
      float y[6];
      MatrixOf<T> a(x, 2, 4), b(x, 3, 4);
      const auto spoiled = [&](auto data, std::int64_t pitch) {
        MatrixOf<T>& m = is_a ? a : b;
        m.data = data, m.pitch = pitch;
        return error_of([&] { gemm(a, b, Copies{{}, MatrixOf<float>(y, 2, 3)}); });
      };
      const std::string name = is_a ? "gemm: a: " : "gemm: b: ";
      EXPECT_EQ(spoiled(x, 3), name + "expected a pitch of at least 4, got 3");
      EXPECT_EQ(spoiled(static_cast<T*>(nullptr), 4), name + "expected a matrix, got a null pointer");
    }
  };
  check(bf16()), check(fp16()), check(float());
  float y[6];
  const MatrixOf<float> none(nullptr, 2, 0), other(nullptr, 3, 0);
  EXPECT_EQ(error_of([&] { gemm(none, other, Copies{{}, MatrixOf<float>(y, 2, 3)}); }), "");  // K = 0
}

struct Inputs {
  GatherLoad<float> gathered = {};
  RotaryTable<> rope = {.head_dim = 4};
  HeadVector<float> weight = {.head_dim = 4};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, tile.load(gathered) + tile.load(weight) + acc);
  }
};

TEST(Program, WithoutWhatItCannotDoWithoutIsRefused) {
  float x[8] = {}, weights[4] = {};
  const auto error = [](const Inputs& program, std::int64_t m = 2) {
    return error_of([&] { cpu::apply<float>(m, 8, program); });
  };
  Inputs program{.gathered = {.data = x, .pitch = 0, .rows = 2}};
  EXPECT_EQ(error(program), "apply: program: expected a GatherLoad of 8 columns, got a pitch of 0");
  program.gathered.rows = 1;
  EXPECT_EQ(error(program), "") << "one row has no pitch";
  EXPECT_EQ(error(Inputs()), "apply: program: expected a GatherLoad with a matrix, got a null pointer");
  EXPECT_EQ(error(Inputs(), 0), "") << "no rows: nothing is read";
  program.rope.columns = 8;
  EXPECT_EQ(error(program), "apply: program: expected a RotaryTable with a table, got a null pointer");
  program.rope.table = x;
  program.weight.columns = program.weight.q_columns = 4;
  EXPECT_EQ(error(program), "apply: program: expected a HeadVector with weights of the q heads, got a null pointer");
  program.weight.q = weights;
  EXPECT_EQ(error(program), "");
  program.weight.columns = 8;
  EXPECT_EQ(error(program), "apply: program: expected a HeadVector with weights of the k heads, got a null pointer");
  program.weight.k = weights;
  EXPECT_EQ(error(program), "");
}

struct HeadMeans {
  HeadMean<float> mean = {.head_dim = 4};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void first(Tile& tile, auto acc) const {
    tile.reduce(mean, acc);
  }
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    tile.store(out, tile.load(mean));
  }
};

TEST(Program, WhoseHeadsAreCutOffIsRefused) {
  float y[16];
  const auto error = [&](std::int64_t columns, std::int64_t n) {
    return error_of(
        [&] { cpu::apply<float>(1, n, HeadMeans{{.columns = columns, .head_dim = 4}, MatrixOf<float>(y, 1, n)}); });
  };
  EXPECT_EQ(error(8, 10), "");
  EXPECT_EQ(error(8, 6), "apply: program: expected a HeadMean of whole heads of 4 columns, got 6");
  EXPECT_EQ(error(6, 10), "apply: program: expected a HeadMean of whole heads of 4 columns, got 6");
}

struct TwoOutputs {
  MomentsN<> moments = {};
  OnlineLse<> lse = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.reduce(moments, acc), tile.reduce(lse, acc);
  }
};

TEST(Port, OfTwoOutputsHasBothOrNone) {
  float x[2], y[2];
  const auto error = [](const TwoOutputs& program) { return error_of([&] { cpu::apply<float>(1, 8, program); }); };
  const MatrixOf<float> one(x, 1, 1), other(y, 1, 1);
  EXPECT_EQ(error({{one, other}, {}}), "");
  EXPECT_EQ(error({{one, {}}, {}}), "apply: program: expected a second output of MomentsN, got a null pointer");
  EXPECT_EQ(error({{}, {{}, other}}), "apply: program: expected a second output of OnlineLse, got a null pointer");
}

TEST(Port, OfTwoOutputsRefusesTwoShapesAndTwoPitches) {
  float x[16];
  const MatrixOf<float> narrow(x, 2, 2), wide(x + 8, 2, 2, 3);
  EXPECT_EQ(error_of([&] { MomentsN<>(narrow, wide); }), "MomentsN: expected two matrices of one pitch, got 2 and 3");
  EXPECT_EQ(error_of([&] { OnlineLse<>(wide, narrow); }), "OnlineLse: expected two matrices of one pitch, got 3 and 2");
  EXPECT_EQ(error_of([&] { MomentsN<>({x, 2, 3}, {x + 8, 2, 2}); }),
            "MomentsN: expected two matrices of one shape, got (2, 3) and (2, 2)");
  EXPECT_EQ(error_of([&] { OnlineLse<>({x, 2, 2}, {x + 8, 1, 2}); }),
            "OnlineLse: expected two matrices of one shape, got (2, 2) and (1, 2)");
  EXPECT_EQ(error_of([&] { MomentsN<>({x, 1, 2, 2}, {x + 8, 1, 2, 3}); }), "") << "that of one row is never used";
}

/// A port of each kind that reads or writes memory.
struct Everything {
  ColVector<const float> scale = {};
  ColVector<float> column = {};
  RowVector<const float> bias = {};
  TileLoad<float> in = {};
  TileStore<float> out = {};
  TileStore<float, Width::Half> half = {};
  MomentsN<> moments = {};
  OnlineLse<> lse = {};
  ReduceM<Sum> sums = {};
  GatherLoad<float> table = {};
  struct {
    RotaryTable<> angles = {.head_dim = 4};
    HeadVector<float> weights = {.head_dim = 4};
    TargetSelect<> target = {};
    OneHot one = {};
  } heads = {};
  template <class Tile>
  CODA_FN void operator()(Tile&, auto) const {}
};

/// Memory of which the tests give pieces to ports, 64 floats each.
class Overlap : public ::testing::Test {
 protected:
  static constexpr std::int64_t kM = 4, kN = 8, kK = 16;
  float* piece(int i) { return memory_.data() + 64 * i; }
  MatrixOf<float> matrix(int i) { return {piece(i), kM, kN}; }
  /// Of a product whose operands are the pieces 0 and 1-2.
  std::string error(Everything program) {
    if (!program.table.data) program.table = {.data = piece(7), .pitch = kN, .rows = kM};  // it cannot be absent
    const std::string text =
        error_of([&] { coda::gemm(MatrixOf<float>(piece(0), kM, kK), MatrixOf<float>(piece(1), kN, kK), program); });
    const std::string expected = "gemm: program: expected a ";
    return text.starts_with(expected) ? text.substr(expected.size()) : text;
  }

 private:
  std::vector<float> memory_ = std::vector<float>(64 * 8);
};

TEST_F(Overlap, OfAnOutputWithAnOperandIsRefused) {
  const auto with = [](const char* other) {
    return std::string("TileStore with memory of its own, got memory that overlaps ") + other;
  };
  EXPECT_EQ(error({.out = matrix(3)}), "");
  EXPECT_EQ(error({.out = matrix(0)}), with("operand a"));
  EXPECT_EQ(error({.out = {{piece(0) + 63, kM, kN}}}), with("operand a"));
  EXPECT_EQ(error({.out = matrix(2)}), with("operand b"));
  EXPECT_EQ(error({.in = matrix(0), .out = matrix(3)}), "") << "only read";
}

TEST_F(Overlap, OfATileWithTheOneThatItIsMadeOfIsInPlaceOnlyIfItIsExactlyIt) {
  const std::string inexact =
      "TileStore with memory of its own, got memory that overlaps TileLoad without being exactly it";
  EXPECT_EQ(error({.in = matrix(3), .out = matrix(3)}), "");
  EXPECT_EQ(error({.in = matrix(3), .out = {{piece(3) + 1, kM, kN}}}), inexact);
  EXPECT_EQ(error({.in = matrix(3), .out = {{piece(3), kM, kN, kN + 1}}}), inexact);
  EXPECT_EQ(error({.in = matrix(3), .half = {{piece(3), kM, kN / 2, kN}}}), inexact) << "other elements";
  // Columns beside each other of one buffer.
  const MatrixOf<float> left(piece(3), kM, kN, 2 * kN);
  EXPECT_EQ(error({.in = left, .out = {{piece(3) + kN, kM, kN, 2 * kN}}}), "");
  EXPECT_EQ(error({.in = left, .out = {{piece(3) + kN - 1, kM, kN, 2 * kN}}}), inexact);
}

TEST_F(Overlap, OfTwoOutputsIsRefused) {
  const auto of = [](const char* one, const char* other) {
    return std::string(one) + " with memory of its own, got memory that overlaps " + other;
  };
  const MatrixOf<float> narrow(piece(3), kM, 1), other(piece(4), kM, 1);
  EXPECT_EQ(error({.out = matrix(3), .half = {{piece(3) + kN - 1, kM, kN / 2}}}), of("TileStore", "TileStore"));
  EXPECT_EQ(error({.moments = {narrow, narrow}}), of("MomentsN", "MomentsN's m2"));
  EXPECT_EQ(error({.out = matrix(4), .moments = {narrow, other}}), of("TileStore", "MomentsN's m2"));
  EXPECT_EQ(error({.out = matrix(4), .lse = {narrow, other}}), of("TileStore", "OnlineLse's sum"));
  EXPECT_EQ(error({.lse = {narrow, narrow}}), of("OnlineLse", "OnlineLse's sum"));
  EXPECT_EQ(error({.out = matrix(3), .sums = {{piece(3), 1, kN}}}), of("TileStore", "ReduceM"));
  EXPECT_EQ(error({.column = {piece(3) + 31}, .out = matrix(3)}), of("ColVector", "TileStore"));
  EXPECT_EQ(error({.column = {piece(3) + 32}, .out = matrix(3)}), "");
  EXPECT_EQ(error({.out = matrix(3), .heads = {.target = {{}, piece(3)}}}), of("TileStore", "TargetSelect"));
}

TEST_F(Overlap, OfAnOutputWithAnInputThatAllOfARowReadIsRefused) {
  const auto with = [](const char* other) {
    return std::string("TileStore with memory of its own, got memory that overlaps ") + other;
  };
  const MatrixOf<float> out = matrix(3);
  const auto* index = reinterpret_cast<const std::int32_t*>(piece(3));
  EXPECT_EQ(error({.scale = {piece(3)}, .out = out}), with("ColVector"));
  EXPECT_EQ(error({.bias = {piece(3) + 31}, .out = out}), with("RowVector"));
  EXPECT_EQ(error({.out = out, .table = {.data = piece(3), .pitch = kN, .rows = kM}}), with("GatherLoad"));
  // Of rows that nobody knows the first one counts.
  EXPECT_EQ(error({.out = out, .table = {.data = piece(3) + 24, .pitch = kN}}), with("GatherLoad"));
  EXPECT_EQ(error({.out = out, .table = {.data = piece(2), .pitch = kN}}), "");
  EXPECT_EQ(error({.out = out, .table = {.data = piece(4), .pitch = kN, .index = index}}), with("GatherLoad's index"));
  EXPECT_EQ(error({.out = out, .heads = {.one = {.index = index}}}), with("OneHot's index"));
  EXPECT_EQ(error({.out = out, .heads = {.target = {.index = index}}}), with("TargetSelect's index"));
  const RotaryTable<> angles{.table = piece(3), .columns = kN, .head_dim = 4, .rows = 4};
  RotaryTable<> positions = angles;
  positions.table = piece(4), positions.position = index;
  EXPECT_EQ(error({.out = out, .heads = {.angles = angles}}), with("RotaryTable"));
  EXPECT_EQ(error({.out = out, .heads = {.angles = positions}}), with("RotaryTable's position"));
  const HeadVector<float> q{.q = piece(3), .k = piece(4), .q_columns = 4, .columns = 8, .head_dim = 4};
  EXPECT_EQ(error({.out = out, .heads = {.weights = q}}), with("HeadVector's q"));
}

}  // namespace
}  // namespace coda::test
