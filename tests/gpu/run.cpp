#include "tests/gpu/run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/sm90/config.h"
#include "tests/support/accuracy.h"

namespace coda::test::gpu {
namespace {

using ops::Backend;

DType type_of(const Slot& s, DType type) {
  if (s.kind == Kind::fixed) return s.fixed;
  if (s.kind == Kind::operand) return type;
  return type == DType::fp64 ? DType::fp64 : DType::fp32;
}

Block block_of(const Slot& s, DType type, Backend backend) {
  Block b{.type = type_of(s, type), .rows = s.rows, .cols = s.cols, .output = s.output, .filled = s.filled};
  if (s.tiles == Tiles::columns) {
    b.cols = s.head_dim > 0 ? ops::head_tiles_n(s.cols, s.head_dim, backend) : ops::tiles_n(s.cols, backend);
  } else if (s.tiles == Tiles::rows) {
    b.rows = ops::tiles_m(s.rows, backend);
  }
  b.pitch = b.cols;
  return b;
}

void place(Block& b, const Slot& s, Route route, std::uint64_t seed) {
  const std::int64_t size = size_of(b.type), chunk = 16 / size;
  const auto pick = [&](std::int64_t below) {
    return static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(below));
  };
  if (route.kind != Route::ragged) {
    if (s.packed) return;
    b.pitch = (b.cols + chunk - 1) / chunk * chunk + chunk * pick(3);
    b.misalign = 16 * pick(4);
    return;
  }
  if (s.packed && s.cols > 1) return;  // a rotary table
  b.misalign = size * (1 + pick(chunk > 2 ? chunk - 1 : 1));
  if (s.packed) return;
  b.pitch = b.cols + 1 + pick(3);
  if (b.pitch % chunk == 0) ++b.pitch;
}

// ---- partial results: tiles of the CPU are whole numbers of Hopper's, but for heads of some widths

std::int64_t tile_of(const Slot& s, Backend backend) {
  if (s.head_dim == 0) return backend == Backend::cpu ? cpu::kTileN : sm90::kTileN;
  return backend == Backend::cpu ? cpu::tile_n_for_heads(s.head_dim) : sm90::tile_n_for_heads(s.head_dim);
}
static_assert(cpu::kTileN % sm90::kTileN == 0 && cpu::kTileM % sm90::kTileM == 0);

/// Tiles of a backend in one block of those that are compared.
std::int64_t tiles_in_block(const Slot& s, Backend backend, std::int64_t tiles) {
  const std::int64_t wide = tile_of(s, Backend::cpu), narrow = tile_of(s, Backend::sm90);
  if (wide % narrow != 0) return std::max<std::int64_t>(tiles, 1);
  return backend == Backend::cpu ? 1 : wide / narrow;
}

/// `other` is the partner's values, tile by tile.
Mat fold_columns(const Slot& s, Backend backend, const Mat& x, const Mat& other) {
  const std::int64_t each = tiles_in_block(s, backend, x.cols), tile = tile_of(s, backend);
  Mat y(x.rows, (x.cols + each - 1) / each);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t b = 0; b < y.cols; ++b) {
      const std::int64_t first = b * each, last = std::min(first + each, x.cols);
      const auto over = [&](const auto& term) {
        double sum = 0;
        for (std::int64_t t = first; t < last; ++t)
          sum += term(t, static_cast<double>(std::min(tile, s.cols - t * tile)));
        return sum;
      };
      const auto mean = [&](const Mat& means) {
        const double count = over([](std::int64_t, double width) { return width; });
        return over([&](std::int64_t t, double width) { return width * means(i, t); }) / count;
      };
      const auto max = [&](const Mat& maxima) {
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t t = first; t < last; ++t) {
          if (!(maxima(i, t) <= most)) most = maxima(i, t);  // a NaN stays
          if (std::isnan(most)) break;
        }
        return most;
      };
      switch (s.fold) {
        case Fold::max:
          y(i, b) = max(x);
          break;
        case Fold::sum_exp: {
          const double most = max(other);
          y(i, b) = over([&](std::int64_t t, double) {
            return other(i, t) == most ? x(i, t) : x(i, t) * std::exp(other(i, t) - most);
          });
          break;
        }
        case Fold::mean:
          y(i, b) = mean(x);
          break;
        case Fold::m2: {
          const double center = mean(other);
          y(i, b) = over([&](std::int64_t t, double width) {
            return x(i, t) + width * (other(i, t) - center) * (other(i, t) - center);
          });
          break;
        }
        default:
          y(i, b) = over([&](std::int64_t t, double) { return x(i, t); });
      }
    }
  }
  return y;
}
Mat fold_rows(Backend backend, const Mat& x) {
  const std::int64_t each = backend == Backend::cpu ? 1 : cpu::kTileM / sm90::kTileM;
  Mat y((x.rows + each - 1) / each, x.cols);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.cols; ++j) y(i / each, j) += x(i, j);
  return y;
}

// ---- comparison

double largest_finite(DType type) {
  switch (type) {
    case DType::bf16:
      return std::ldexp(255.5, 120);  // from here on to infinity
    case DType::fp16:
      return 65520;
    case DType::fp32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

std::string compare_slot(const Problem& p, const Slot& s, const Mat& got, const Mat& reference, const Mat& chain,
                         const std::vector<Mat>& all) {
  if (got.rows != reference.rows || got.cols != reference.cols || got.rows != chain.rows || got.cols != chain.cols) {
    return "shapes differ";
  }
  const DType type = type_of(s, p.type);
  const double limit = largest_finite(type);
  double most = 0, chain_error = 0;
  for (std::size_t i = 0; i < reference.v.size(); ++i) {
    if (!(std::fabs(reference.v[i]) < limit)) continue;
    most = std::max(most, std::fabs(reference.v[i]));
    if (std::isfinite(chain.v[i])) chain_error = std::max(chain_error, std::fabs(chain.v[i] - reference.v[i]));
  }
  double magnitude = most;
  if (const double terms = s.magnitude ? s.magnitude(all) : 0; std::isfinite(terms)) magnitude = std::max(most, terms);
  const double units = std::max(64., static_cast<double>(p.shape.k) / 16);
  double bound = 2 * chain_error + ulp_at(type, most) + units * std::ldexp(magnitude, -23);
  if (s.of_short) bound += std::ldexp(magnitude, p.type == DType::fp16 ? -11 : -8);
  if (std::isnan(bound)) bound = 0;
  for (std::int64_t i = 0; i < got.rows; ++i) {
    for (std::int64_t j = 0; j < got.cols; ++j) {
      const double x = got(i, j), y = reference(i, j);
      bool good = std::fabs(x - y) <= bound;
      if (std::isnan(y)) good = std::isnan(x);
      else if (std::isinf(y)) good = x == y;
      // What the type cannot hold is infinite, or nearly was.
      else if (!(std::fabs(y) < limit)) good = std::signbit(x) == std::signbit(y) && std::fabs(x) >= limit / 2;
      if (good) continue;
      std::ostringstream text;
      text.precision(9);
      text << "got " << x << ", expected " << y << " at row " << i << ", column " << j << " of (" << got.rows << ", "
           << got.cols << "): bound " << bound << " (CPU " << chain(i, j) << ", its largest error " << chain_error
           << ")";
      return text.str();
    }
  }
  return {};
}

int kernels_in(const Stream& stream, const std::function<void()>& work) {
  return Graph(stream, work, Capture::of_this_thread).kernels();
}

/// Tiles of a row to a thread block of the elementwise kernel: as the library chooses, fewer than have their loads
/// under way together, more, and as many as there may be behind a product and without one.
constexpr int kTilesOfBlocks[] = {0, 2, 5, 16, 128};

}  // namespace

std::string name_of(const Route& route) {
  constexpr const char* kNames[] = {"automatic", "fused", "unfused", "ragged"};
  return route.config == 0 ? kNames[route.kind] : kNames[route.kind] + (" " + std::to_string(route.config));
}

Execution::Execution(const Problem& problem, Backend backend, DType type, Route route, std::uint64_t seed)
    : problem_(problem),
      backend_(backend),
      route_(route),
      choice_{.config = route.config,
              .raster = {.band = 8 >> seed / 4 % 4, .along_m = seed / 16 % 2 == 0},
              .tiles = kTilesOfBlocks[seed / 4 % std::size(kTilesOfBlocks)]},
      image_(backend) {
  std::vector<Block> blocks;
  for (const Slot& s : problem_.slots) {
    blocks.push_back(block_of(s, type, backend));
    place(blocks.back(), s, route, seed + 5 * blocks.size());
    if (s.partner != kNone) blocks.back().pitch = blocks[static_cast<std::size_t>(s.partner)].pitch;
    image_.add(blocks.back());
  }
  image_.allocate();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Slot& s = problem_.slots[i];
    if (!s.output || s.filled) image_.set(static_cast<int>(i), s.values);
  }
}

void Execution::call(void* stream, const Spoil* spoil) const {
  if (route_.kind == Route::automatic) return call_as(ChosenWay(sm90::Way::automatic), stream, spoil);
  sm90::Choice choice = choice_;
  // Ragged matrices must lead away from the fused kernel even where it is asked for.
  choice.way = route_.kind == Route::unfused ? sm90::Way::unfused : sm90::Way::fused;
  call_as(ChosenWay(choice), stream, spoil);
}
void Execution::call_as(const ChosenWay&, void* stream, const Spoil* spoil) const {
  problem_.call(Bound(image_, spoil), {backend_, stream});
}

bool Execution::is_fused(const Stream& stream) const {
  const auto as_unfused = [&] { call_as(ChosenWay(sm90::Way::unfused), stream.get(), nullptr); };
  const Graph unfused(stream, as_unfused, Capture::of_this_thread);
  const Graph mine(stream, [&] { call(stream.get()); }, Capture::of_this_thread);
  // A bare product is one kernel in either way: ours or cuBLASLt's.
  return mine.kernels() < unfused.kernels() || mine.others() < unfused.others();
}

std::string Execution::name() const { return problem_.name + ", " + name_of(route_); }

std::string Execution::fault() const {
  const std::string text = image_.fault([&](int i) { return problem_.slot(i).name; });
  return text.empty() ? text : name() + ": " + text;
}

std::vector<Mat> Execution::values() const {
  std::vector<Mat> raw, out;
  for (int i = 0; i < image_.blocks(); ++i) raw.push_back(problem_.slot(i).output ? image_.get(i) : Mat());
  for (int i = 0; i < image_.blocks(); ++i) {
    const Slot& s = problem_.slot(i);
    const Mat& x = raw[static_cast<std::size_t>(i)];
    if (s.tiles == Tiles::columns) {
      out.push_back(
          fold_columns(s, backend_, x, s.partner == kNone ? Mat() : raw[static_cast<std::size_t>(s.partner)]));
    } else {
      out.push_back(s.tiles == Tiles::rows ? fold_rows(backend_, x) : x);
    }
  }
  return out;
}

int kernels_of(const Execution& run, const Stream& stream) {
  return kernels_in(stream, [&] { run.call(stream.get()); });
}

Expected expected_of(const Problem& problem) {
  Expected e;
  Execution chain(problem, Backend::cpu, problem.type);
  chain.once();
  e.chain = chain.values();
  const bool needed = std::any_of(problem.slots.begin(), problem.slots.end(),
                                  [&](const Slot& s) { return s.output && !(s.linear && problem.exact); });
  if (!needed) return e;
  Execution reference(problem, Backend::cpu, DType::fp64);
  reference.once();
  e.reference = reference.values();
  return e;
}

std::string compare(const Problem& problem, const std::vector<Mat>& got, const Expected& expected) {
  for (std::size_t i = 0; i < problem.slots.size(); ++i) {
    const Slot& s = problem.slots[i];
    if (!s.output) continue;
    std::string failure;
    if (problem.exact && s.linear) {
      failure = check_exact(s.name, got[i], expected.chain[i]);
    } else {
      failure = compare_slot(problem, s, got[i], expected.reference[i], expected.chain[i], expected.reference);
      if (!failure.empty()) failure = s.name + ": " + failure;
    }
    if (!failure.empty()) return problem.name + ": " + failure;
  }
  return {};
}

std::string check_on_hopper(const Problem& problem, Route route, const Expected& expected, void* stream) {
  Execution run(problem, Backend::sm90, problem.type, route, problem.slots.size());
  run.once(stream);
  std::string failure = run.fault();
  if (!failure.empty()) return failure;
  failure = compare(problem, run.values(), expected);
  return failure.empty() ? failure : name_of(route) + ": " + failure;
}

}  // namespace coda::test::gpu
