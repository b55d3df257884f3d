#include "tests/gpu/problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <stdexcept>

namespace coda::test::gpu {
namespace {

std::int64_t up_to(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

}  // namespace

Draw::Draw(const Options& o, const Shape& s) : random(o.seed), options(o), m(s.m), n(s.n), k(s.k) {
  if (o.whole_chunks) n = up_to(n, 8), k = up_to(k, 8);
}

void Draw::make_n_even() { n += n % 2; }

Id Draw::input(Slot s, Mat values) {
  s.rows = values.rows, s.cols = values.cols;
  s.values = std::move(values);
  return add(std::move(s));
}

Draw::Operands Draw::product() {
  const auto layout = reference::layout_of(options.layout);
  test::Problem p;
  if (exact()) {
    p = exact_problem(random, layout, m, n, k);
  } else {
    const double size = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    const Mat a = normal_mat(random, m, k, scale(), options.type);
    p = laid_out(a, normal_mat(random, n, k, size, options.type), layout);
  }
  const Id a = input({.name = "a", .by_row = options.layout != Layout::tn}, std::move(p.a));
  return {a, input({.name = "b"}, std::move(p.b)), options.layout};
}

Id Draw::matrix(const char* name, std::int64_t cols, double size) {
  return input({.name = name, .by_row = true},
               exact() ? integer_mat(random, m, cols, -8, 8) : normal_mat(random, m, cols, size, options.type));
}
Id Draw::vector(const char* name, std::int64_t count, Kind kind, double size) {
  const DType type = kind == Kind::operand ? options.type : DType::fp32;
  return input({.name = name, .kind = kind, .packed = true},
               exact() ? integer_mat(random, count, 1, -8, 8) : normal_mat(random, count, 1, size, type));
}
Id Draw::rows(const char* name, double size) {
  const Id id = vector(name, m, Kind::statistic, size);
  slot(id).by_row = true;
  return id;
}
Id Draw::factors(const char* name, std::int64_t count, Kind kind, double size, bool by_row) {
  const DType type = kind == Kind::operand ? options.type : DType::fp32;
  const Vec x = exact() ? power_of_two_vec(random, count) : uniform_vec(random, count, 0.5 * size, 2 * size, type);
  return input({.name = name, .kind = kind, .packed = true, .by_row = by_row}, reference::column(x));
}
Id Draw::indices(const char* name, const std::vector<std::int64_t>& values) {
  const DType type = random.integer(0, 1) == 1 ? DType::int64 : DType::int32;
  return input({.name = name, .kind = Kind::fixed, .fixed = type, .packed = true, .by_row = true},
               reference::column(Vec(values.begin(), values.end())));
}
Id Draw::targets(std::int64_t classes, std::int64_t ignore_index) {
  if (classes == 0) return indices("target", std::vector<std::int64_t>(static_cast<std::size_t>(m), ignore_index));
  return indices("target", random_targets(random, m, classes, 5, ignore_index));
}

Id Draw::output(Slot s) {
  s.output = true;
  return add(std::move(s));
}
Id Draw::out(const char* name, std::int64_t cols, bool linear) {
  return output({.name = name, .rows = m, .cols = cols, .by_row = true, .linear = linear});
}
Id Draw::row_statistic(const char* name, bool linear) {
  return output(
      {.name = name, .kind = Kind::statistic, .rows = m, .cols = 1, .packed = true, .by_row = true, .linear = linear});
}
Id Draw::partial(const char* name, std::int64_t cols, Fold fold, bool linear, std::int64_t head_dim) {
  return output({.name = name,
                 .kind = Kind::statistic,
                 .rows = m,
                 .cols = cols,
                 .by_row = true,
                 .tiles = Tiles::columns,
                 .head_dim = head_dim,
                 .fold = fold,
                 .linear = linear});
}
Id Draw::column_partial(const char* name, bool linear) {
  return output({.name = name,
                 .kind = Kind::statistic,
                 .rows = m,
                 .cols = n,
                 .tiles = Tiles::rows,
                 .fold = Fold::sum,
                 .linear = linear});
}
Id Draw::filled(Id id, Mat values) {
  slot(id).filled = true;
  slot(id).values = std::move(values);
  return id;
}
Id Draw::in_place(Id id, const char* name, bool linear) {
  Slot& s = slot(id);
  s.name = name;
  s.output = s.filled = true;
  s.linear = linear;
  return id;
}

Magnitude Draw::dot(Id dz, const Mat& z) {
  return [dz, z](const std::vector<Mat>& reference) {
    const Mat& d = reference[static_cast<std::size_t>(dz)];
    double largest = 0;
    for (std::int64_t i = 0; i < d.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < d.cols; ++j) sum += std::fabs(d(i, j) * z(z.rows == 1 ? 0 : i, j));
      largest = std::max(largest, sum);
    }
    return largest;
  };
}

Draw::Norm Draw::layernorm() {
  Norm x{.rstd = factors("norm.rstd", m, Kind::statistic, 1 / scale(), true),
         .mean = rows("norm.mean", scale()),
         .u = vector("norm.u", n, Kind::statistic, 1)};
  if (given()) x.c = vector("norm.c", n, Kind::statistic, 1);
  return x;
}

Draw::Dot Draw::row_terms(bool layernorm, Id dz, const Mat& z, std::int64_t tiled, bool linear, std::int64_t head_dim) {
  Dot x;
  if (!layernorm && !given()) return x;
  const std::int64_t width = slot(dz).cols;
  x.zdz = partial("dot.zdz", tiled, Fold::sum, linear, head_dim);
  slot(x.zdz).magnitude = dot(dz, z);
  if (!layernorm) return x;
  x.udz = partial("dot.udz", tiled, Fold::sum, linear, head_dim);
  x.u = vector("dot.u", width, Kind::statistic, 1);
  slot(x.udz).magnitude = dot(dz, reference::transposed(values(x.u)));
  if (!given()) return x;
  x.c = vector("dot.c", width, Kind::statistic, 1);
  Mat shifted = z;
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t j = 0; j < z.cols; ++j) shifted(i, j) = std::fabs(z(i, j)) + std::fabs(values(x.c)(j, 0));
  slot(x.zdz).magnitude = dot(dz, shifted);
  return x;
}

void Draw::allow_for_derivative(const Dot& terms, const Operands& product, const Mat& z) {
  const auto longest = [](const Mat& x, bool rows) {
    double most = 0;
    for (std::int64_t i = 0; i < (rows ? x.rows : x.cols); ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < (rows ? x.cols : x.rows); ++j) sum += std::pow(rows ? x(i, j) : x(j, i), 2);
      most = std::max(most, sum);
    }
    return std::sqrt(most);
  };
  const auto largest = [](const Mat& x) {
    return std::transform_reduce(
        x.v.begin(), x.v.end(), 0., [](double a, double b) { return std::max(a, b); },
        [](double e) { return std::fabs(e); });
  };
  const double of_product = longest(values(product.a), product.layout != Layout::tn) *
                            longest(values(product.b), product.layout == Layout::nt);
  // A unit in the last place of it, where compare() allows for 64.
  const auto allow = [&](Id id, double factor) {
    slot(id).magnitude = [terms = slot(id).magnitude, least = of_product * factor / 64](const std::vector<Mat>& all) {
      return std::max(terms(all), least);
    };
  };
  if (terms.zdz != kNone) allow(terms.zdz, largest(z));
  if (terms.udz != kNone) allow(terms.udz, largest(values(terms.u)));
}

Draw::Heads Draw::heads() {
  constexpr std::int64_t kWhole[] = {32, 64, 128}, kAny[] = {2, 4, 6, 8, 16, 40, 64, 96, 128, 200, 256, 320, 512};
  Heads h;
  h.dim = options.whole_chunks ? kWhole[random.integer(0, std::ssize(kWhole) - 1)]
                               : kAny[random.integer(0, std::ssize(kAny) - 1)];
  if (options.head_dim > 0) h.dim = options.head_dim;
  const std::int64_t total = n == 0 ? 0 : std::max<std::int64_t>(n / h.dim, 1);
  n = total * h.dim;
  h.q = random.integer(0, total);
  h.k = random.integer(0, total - h.q);
  h.v = total - h.q - h.k;

  const std::int64_t positions = std::max<std::int64_t>(m, 1) + random.integer(0, 9);
  h.table = input({.name = "heads.table", .kind = Kind::statistic, .packed = true},
                  rotation_mat(random, positions, h.dim, exact(), DType::fp32));
  if (given()) {
    std::vector<std::int64_t> position(static_cast<std::size_t>(m));
    for (auto& p : position) p = random.integer(0, positions - 1);
    h.position = indices("heads.position", position);
  }
  return h;
}

Problem Problem::rows(std::int64_t first, std::int64_t count) const {
  Problem part = *this;
  part.shape.m = count;
  part.name += ", rows " + std::to_string(first) + " to " + std::to_string(first + count - 1);
  for (Slot& s : part.slots) {
    if (s.by_row || s.tiles == Tiles::rows) s.rows = count;
    if (!s.by_row || s.values.rows == 0) continue;
    Mat values(count, s.values.cols);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < values.cols; ++j) values(i, j) = s.values(first + i, j);
    s.values = std::move(values);
  }
  return part;
}

std::vector<Program> programs() {
  std::vector<Program> all;
  for (const auto part : {forward_programs(), loss_programs(), backward_programs(), small_programs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  // For a quick look at some of them.
  if (const char* names = std::getenv("CODA_TEST_PROGRAMS"); names && *names) {
    const bool others = *names == '-';
    const std::string listed = "," + std::string(names + (others ? 1 : 0)) + ",";
    std::erase_if(all, [&](const Program& p) {
      const bool found = listed.find("," + std::string(p.name) + ",") != listed.npos;
      return found == others;
    });
  }
  return all;
}

Problem draw(const Program& program, int variant, const Options& options, const Shape& shape) {
  if (variant < 0 || variant >= program.variants) throw std::logic_error("draw: there is no such variant");
  Options o = options;
  if (!program.any_layout) o.layout = Layout::nt;
  Draw d(o, shape);
  Call call = program.draw(d, variant);
  std::ostringstream name;
  name << program.name << " variant " << variant << " " << coda::name_of(o.type) << " " << coda::name_of(o.layout)
       << " M=" << d.m << " N=" << d.n << " K=" << d.k << (o.exact ? " exact" : "") << " scale=" << o.scale
       << " seed=" << o.seed;
  return {.name = name.str(),
          .type = o.type,
          .shape = {d.m, d.n, d.k},
          .exact = o.exact,
          .slots = std::move(d.slots),
          .call = std::move(call)};
}

std::vector<Problem> one_of_each(const Shape& shape, std::uint64_t seed) {
  std::vector<Problem> all;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{.type = ++seed % 2 == 0 ? DType::bf16 : DType::fp16,
                            .layout = program.natural,
                            .exact = false,
                            .whole_chunks = true,
                            .everything = true,
                            .seed = seed};
      all.push_back(draw(program, variant, options, shape));
    }
  }
  return all;
}

}  // namespace coda::test::gpu
