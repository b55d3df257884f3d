#include "coda/backend/sm90/choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "coda/backend/sm90/config.h"
#include "coda/core/error.h"
#include "coda/core/file.h"
#include "coda/core/json.h"

namespace coda::sm90 {

namespace detail {
extern const std::span<const char* const> kShippedTables;  // the files in tuning/, put into the library by CMake
}

namespace {

using nlohmann::json;

/// What the calling thread asks for.
struct Forced {
  Way way = Way::automatic;
  bool exactly = false;  // as `choice` says
  Choice choice = {};
};
constinit thread_local Forced forced;
constinit thread_local std::optional<Algorithm> forced_algorithm;

auto key_of(const Entry& e) { return std::tuple(std::string_view(e.program), e.layout, e.chip, e.n, e.k, e.m); }
bool before(const Entry& x, const Entry& y) { return key_of(x) < key_of(y); }

/// One member of a record, with messages that say where it is.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("", "an object");
  }
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const {
    const json& x = member(name);
    const std::string expected = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
    // An unsigned number past the signed range would wrap around.
    const bool fits = x.is_number_unsigned() ? x.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                             : x.is_number_integer() && x.get<std::int64_t>() <= most;
    if (!fits || x.get<std::int64_t>() < least) fail(name, expected);
    return x.get<std::int64_t>();
  }
  double milliseconds(const char* name) const {
    const json& x = member(name);
    if (!x.is_number() || !(x.get<double>() > 0)) fail(name, "milliseconds above 0");
    return x.get<double>();
  }
  std::string string(const char* name) const {
    const json& x = member(name);
    if (!x.is_string()) fail(name, "a string");
    return x.get<std::string>();
  }
  /// The position of the member's text among `names`.
  std::size_t one_of(const char* name, std::initializer_list<const char*> names) const {
    const std::string text = string(name);
    const auto* at = std::find(names.begin(), names.end(), text);
    std::string expected = "one of";
    for (const char* n : names) expected += std::string(" ") + n;
    if (at == names.end()) fail(name, expected);
    return static_cast<std::size_t>(at - names.begin());
  }
  bool has(const char* name) const { return object_.contains(name); }
  bool is_null(const char* name) const { return object_.contains(name) && member(name).is_null(); }
  Reader object(const char* name) const { return {member(name), where_ + "." + name}; }
  const json& list(const char* name) const {
    const json& x = member(name);
    if (!x.is_array()) fail(name, "a list");
    return x;
  }
  [[noreturn]] void fail(const std::string& name, const std::string& expected) const {
    const auto at = object_.is_object() ? object_.find(name) : object_.end();
    const std::string got = name.empty() ? std::string(object_.type_name()) : at == object_.end() ? "none" : shown(*at);
    throw Error(Status::invalid_argument,
                where_ + (name.empty() ? "" : "." + name) + ": expected " + expected + ", got " + got);
  }

 private:
  const json& member(const char* name) const {
    static const json& none = *new json();  // never destroyed: a thread may be here when main ends
    const auto at = object_.find(name);
    return at == object_.end() ? none : *at;
  }
  const json& object_;
  std::string where_;
};

constexpr std::int64_t kMostSide = std::int64_t{1} << 31;
constexpr int kMostConfigurations = 16, kMostBand = 1024;

Algorithm read_algorithm(const Reader& r) {
  const auto value = [&](const char* name) {
    return static_cast<int>(r.integer(name, 0, std::numeric_limits<int>::max()));
  };
  // CUBLASLT_REDUCTION_SCHEME_NONE or _COMPUTE_TYPE: others add up in the order in which blocks finish, or round first.
  const int reduction = value("reduction");
  if (reduction != 0 && reduction != 2) r.fail("reduction", "0 or 2");
  return {.id = value("id"),
          .tile = value("tile"),
          .stages = value("stages"),
          .split_k = value("split_k"),
          .reduction = reduction,
          .swizzle = value("swizzle"),
          .custom = value("custom"),
          .inner_shape = value("inner_shape"),
          .cluster_shape = value("cluster_shape")};
}

Entry read_entry(const json& record, const std::string& where) {
  const Reader r(record, where);
  Entry e;
  e.program = r.string("program");
  e.layout = static_cast<Layout>(r.one_of("layout", {"nt", "nn", "tn"}));
  e.m = r.integer("m", 1, kMostSide), e.n = r.integer("n", 1, kMostSide), e.k = r.integer("k", 1, kMostSide);
  if (is_product(e.program)) {
    e.choice.way = Way::unfused;
    if (!r.is_null("algorithm")) e.algorithm = read_algorithm(r.object("algorithm"));
    if (!r.has("way")) {
      e.ms = e.unfused_ms = r.milliseconds("ms"), e.rule_ms = r.milliseconds("rule_ms");
      return e;
    }
    if (!find_fused(e.program)) r.fail("way", "none for " + e.program);
  }
  e.choice.way = r.one_of("way", {"fused", "unfused"}) == 0 ? Way::fused : Way::unfused;
  e.choice.config = static_cast<int>(r.integer("config", 0, kMostConfigurations - 1));
  e.choice.raster.band = static_cast<int>(r.integer("band", 1, kMostBand));
  e.choice.raster.along_m = r.one_of("along", {"m", "n"}) == 0;
  e.ms = r.milliseconds("ms"), e.rule_ms = r.milliseconds("rule_ms"), e.unfused_ms = r.milliseconds("unfused_ms");
  return e;
}

constexpr std::uint64_t kMaxFile = std::uint64_t{64} << 20;

struct Loaded {
  Table table;
  UserTable user;
};
const Loaded& loaded() {
  // Never freed: threads may outlive main, and kernels keep spans into it.
  static const Loaded& once = *new Loaded([] {
    Loaded l;
    for (const char* text : detail::kShippedTables) l.table.add(text, "the table that ships with the library");
    const char* path = std::getenv("CODA_TUNING");
    if (!path || !*path) return l;
    l.user.path = path;
    try {
      l.table.add(read_text(path, kMaxFile), path);
    } catch (const Error& e) {
      l.user.error = e.what();
      std::fprintf(stderr, "coda: warning: CODA_TUNING: %s; the file is not used\n", e.what());
    }
    return l;
  }());
  return once;
}

/// At most a quarter more or fewer rows.
bool near(std::int64_t m, std::int64_t measured) { return 4 * m <= 5 * measured && 4 * measured <= 5 * m; }

}  // namespace

void set_way(Way w) { forced = {.way = w}; }
Way way() { return forced.way; }
int chosen_tiles() { return forced.choice.tiles; }
void set_choice(const Choice& choice) { forced = {.way = choice.way, .exactly = true, .choice = choice}; }
void set_algorithm(const std::optional<Algorithm>& algorithm) { forced_algorithm = algorithm; }
const std::optional<Algorithm>& chosen_algorithm() { return forced_algorithm; }

std::string text_of(const Choice& c, bool splits_k) {
  if (c.way == Way::unfused) return "unfused";
  if (splits_k) return "fused, configuration " + std::to_string(c.config) + ", which splits K";
  return "fused, configuration " + std::to_string(c.config) + ", bands of " + std::to_string(c.raster.band) +
         (c.raster.along_m ? " along m" : " along n");
}

std::string text_of(const Algorithm& a) {
  if (a == Algorithm()) return "cuBLASLt's own choice";
  std::ostringstream text;
  text << "cuBLASLt's algorithm " << a.id << ", tile " << a.tile << ", stages " << a.stages << ", cluster shape "
       << a.cluster_shape << ", custom option " << a.custom;
  if (a.inner_shape != 0) text << ", inner shape " << a.inner_shape;
  if (a.swizzle != 0) text << ", swizzled";
  if (a.split_k > 1) text << ", K in " << a.split_k << " parts";
  return text.str();
}

Choice Rule::operator()(std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip) const {
  const std::int64_t multiprocessors = chip.multiprocessors;
  const auto tiles = [&](int rows) { return ceil_div(m, rows) * ceil_div(n, tile_n); };
  if (work_of(m, n, k) >= until || (fast_memory && !chip.has_fast_memory())) return {.way = Way::unfused};
  const auto fill = [&](int rows) { return 4 * tiles(rows) >= 3 * multiprocessors; };
  const auto in = [&](int config) {
    return Choice{.way = Way::fused, .config = config, .raster = raster(config, m, chip)};
  };
  if (few_rows >= 0 && (m <= most || (fill(kFewRows) && tiles(kFewRows) <= multiprocessors))) return in(few_rows);
  if (takes_lean(m, n, k, chip)) return in(lean);
  return m > kFewRows && fill(tile_m) ? in(0) : Choice{.way = Way::unfused};
}

Raster Rule::raster(int config, std::int64_t m, const Chip& chip) const {
  if (chip.has_fast_memory() || config == lean || config == few_rows) return {};
  // With 32 rows of tiles, bands of rows lose 3 to 8 % against bands of 8 columns; from 64 on they gain.
  constexpr std::int64_t kManyRows = 64, kBandRows = 22;
  const std::int64_t rows = ceil_div(m, tile_m);
  if (rows < kManyRows) return {.band = 4};
  return {.band = static_cast<int>(ceil_div(rows, ceil_div(rows, kBandRows))), .along_m = false};
}

bool Rule::takes_lean(std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip) const {
  if (lean < 0 || k < lean_k(chip)) return false;
  const std::int64_t multiprocessors = chip.multiprocessors;
  const auto tiles = [&](int rows) { return ceil_div(m, rows) * ceil_div(n, tile_n); };
  const std::int64_t large = tiles(2 * tile_m);
  if (chip.has_fast_memory()) return work_of(m, n, k) >= kMuchWork && large >= kManyTiles * multiprocessors;
  // A round of large tiles takes as long as two of small ones: at most 3 % longer in all.
  const std::int64_t rounds = ceil_div(large, multiprocessors), small_rounds = ceil_div(tiles(tile_m), multiprocessors);
  return rounds > 1 && 32 * 2 * rounds <= 33 * small_rounds;
}

namespace {

/// By how much the bandwidths differ, as a ratio.
double distance(const Chip& a, const Chip& b) {
  const double ratio = static_cast<double>(a.memory_gbs) / b.memory_gbs;
  return std::max(ratio, 1 / ratio);
}
/// Chips that differ by less have one table: of two H200, 4814 and 4917 GB/s, a file made on one serves the other, too.
constexpr double kSameMemory = 1.05;

}  // namespace

void Table::add(const std::string& text, const std::string& origin) {
  const json document = parse_json(text);
  if (document.is_discarded()) throw Error(Status::invalid_argument, origin + ": expected a JSON file of `coda tune`");
  const Reader file(document, origin);
  const std::string device = file.string("device");
  Chip chip{static_cast<int>(file.integer("multiprocessors", 1, 1024)),
            static_cast<int>(file.integer("memory_gbs", 1, 1 << 20))};
  const std::string cublaslt = file.string("cublaslt"), whence = origin + ", " + device;
  std::vector<Entry> merged = entries_;
  const auto add = [&](Entry e) {
    e.chip = chip;
    merged.push_back(std::move(e));
  };
  const Chip served_by = nearest(chip);
  if (distance(served_by, chip) <= kSameMemory) chip = served_by;
  if (served_by != chip) {
    for (const Entry& e : entries_)
      if (e.chip == served_by) add(e);
  }
  std::size_t number = 0;
  for (const json& record : file.list("records")) {
    std::string where = origin;
    where.append(": records[").append(std::to_string(number++)).append("]");
    Entry e = read_entry(record, where);
    e.origin = whence;
    e.cublaslt = cublaslt;
    add(std::move(e));
  }
  // Of the same shape the last one.
  std::stable_sort(merged.begin(), merged.end(), before);
  std::vector<Entry> entries;
  for (Entry& e : merged) {
    if (!entries.empty() && key_of(entries.back()) == key_of(e)) entries.back() = std::move(e);
    else entries.push_back(std::move(e));
  }
  entries_ = std::move(entries);
  if (std::find(chips_.begin(), chips_.end(), chip) == chips_.end()) chips_.push_back(chip);
}

Chip Table::nearest(const Chip& device) const {
  const Chip* best = nullptr;
  for (const Chip& c : chips_)
    if (c.multiprocessors == device.multiprocessors && (!best || distance(c, device) < distance(*best, device)))
      best = &c;
  return best ? *best : device;
}

std::span<const Entry> Table::part(std::string_view program, Layout layout) const {
  const auto head = [](const Entry& e) { return std::pair(std::string_view(e.program), e.layout); };
  const std::pair wanted(program, layout);
  const auto begin =
      std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& e) { return head(e) < wanted; });
  const auto end = std::partition_point(begin, entries_.end(), [&](const Entry& e) { return head(e) == wanted; });
  return {begin, end};
}

const Entry* find(std::span<const Entry> part, const Chip& chip, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto wanted = std::tuple(chip, n, k, m);
  const auto at = std::partition_point(part.begin(), part.end(),
                                       [&](const Entry& e) { return std::tuple(e.chip, e.n, e.k, e.m) < wanted; });
  const auto serves = [&](const Entry& e) { return e.chip == chip && e.n == n && e.k == k && near(m, e.m); };
  const Entry* above = at != part.end() && serves(*at) ? &*at : nullptr;
  const Entry* below = at != part.begin() && serves(*std::prev(at)) ? &*std::prev(at) : nullptr;
  if (!above || !below) return above ? above : below;
  return m * m < below->m * above->m ? below : above;  // nearest in ratio
}

const Table& table() { return loaded().table; }
const UserTable& user_table() { return loaded().user; }

Choice choose(std::span<const Entry> part, const Rule& rule, int configurations, std::int64_t m, std::int64_t n,
              std::int64_t k, const Chip& chip) {
  const auto built = [&](const Choice& c) { return c.config < configurations; };
  if (forced.exactly) return built(forced.choice) ? forced.choice : Choice{.way = Way::unfused};
  const Entry* entry = find(part, chip, m, n, k);
  Choice choice = entry && built(entry->choice) ? entry->choice : rule(m, n, k, chip);
  if (forced.way != Way::automatic) choice.way = forced.way;
  return choice;
}

static void add_rounds(Explanation& x, const Rule& rule, std::int64_t m, std::int64_t n, std::int64_t k,
                       int multiprocessors) {
  if (x.choice.way != Way::fused || m == 0 || n == 0) return;
  x.splits_k = x.choice.config == rule.few_rows;
  if (x.splits_k) return;
  x.tile_m = x.choice.config == rule.lean ? 2 * rule.tile_m : rule.tile_m;
  x.steps = ceil_div(k, kStepK);
  x.rounds = rounds_of(ceil_div(m, x.tile_m) * ceil_div(ceil_div(n, rule.tile_n), kClusterN), x.steps, multiprocessors);
}

std::string text_of(const Rounds& r, int tile_m, std::int64_t steps) {
  const auto number = [](std::int64_t v) { return std::to_string(v); };
  std::string text =
      number(r.full) + " of " + number(r.clusters) + " tiles of " + number(tile_m) + " x " + number(kClusterN * kTileN);
  if (r.left == 0) return text;
  text += ", and one of " + number(r.left);
  if (r.split.helpers == 0) return text;
  const int own = r.split.own_steps(static_cast<int>(steps));
  return text + ", of whose " + number(steps) + " steps along K their clusters do " + number(own) +
         " and others the rest";
}

Explanation explain(std::string_view program, DType dtype, Layout layout, std::int64_t m, std::int64_t n,
                    std::int64_t k, std::int64_t head_dim, const Chip& device) {
  Explanation x;
  x.choice.way = Way::unfused;
  const FusedProgram* fused = find_fused(program);
  const auto refuse = [&](std::string why) { return x.why = std::move(why), x; };
  const auto number = [](std::int64_t v) { return std::to_string(v); };
  if (!fused) return refuse("no fused kernel is built for it");
  if (dtype != DType::bf16 && dtype != DType::fp16) {
    return refuse(std::string("the Hopper backend multiplies bf16 and fp16, not ") + coda::name_of(dtype));
  }
  if (!(layout == Layout::nt ? fused->nt : layout == Layout::nn && fused->nn)) {
    return refuse(std::string("no fused kernel is built for layout ") + coda::name_of(layout));
  }
  if (!sides_fit(n, k)) {
    return refuse("fused kernels take N and K that are multiples of 8, since the copy engine moves 16 bytes at least");
  }
  const bool has_heads = program == "gemm_rms_rope" || program == "gemm_rms_qknorm_rope";
  if (has_heads && head_dim % 32 != 0)
    return refuse("fused kernels take heads of a multiple of 32 columns, not " + number(head_dim));
  if (program == "gemm_rms_qknorm_rope" && head_dim > 0 && kTileN % head_dim != 0) {
    return refuse("the norm of a head needs tiles of whole heads: of 32, 64 or 128 columns, not " + number(head_dim));
  }

  const Rule& rule = fused->rule;
  const auto part = table().part(measured_as(program), layout);
  const Chip chip = table().nearest(device);  // as `choose` is asked
  x.entry = find(part, chip, m, n, k);
  if (x.entry && x.entry->choice.config >= fused->configurations) x.entry = nullptr;
  if (x.entry) {
    const Entry& e = *x.entry;
    std::ostringstream why;
    why << "measured with M = " << e.m << " (" << e.origin << "): " << e.ms << " ms; by the rule " << e.rule_ms
        << " ms, unfused " << e.unfused_ms << " ms";
    x.choice = e.choice, x.why = why.str();
    add_rounds(x, rule, m, n, k, device.multiprocessors);
    return x;
  }
  x.choice = rule(m, n, k, chip);
  add_rounds(x, rule, m, n, k, device.multiprocessors);
  const std::string tiles = number(rule.tile_m) + " x " + number(rule.tile_n) + " tiles";
  const std::string count = number(chip.multiprocessors) + " multiprocessors";
  x.why = "not measured; the rule: ";
  if (rule.few_rows >= 0) {
    x.why += "configuration " + number(rule.few_rows) + ", which splits K, " +
             (rule.most > 0 ? "for up to " + number(rule.most) + " rows, or " : "") + "where there are " +
             number(Rule::kFewRows) + " x " + number(rule.tile_n) + " tiles for three quarters to all of the " + count +
             "; ";
  }
  x.why += "configuration 0 from " + number(Rule::kFewRows + 1) + " rows on, where " + tiles +
           " fill three quarters of the " + count + "; else unfused";
  if (rule.lean >= 0 && rule.lean_k(chip) < LeanFrom::kNever) {
    x.why += "; from K = " + number(rule.lean_k(chip)) + " on configuration " + number(rule.lean) +
             ", which draws less power, ";
    x.why += chip.has_fast_memory()
                 ? "for M N K = 2^" + number(std::ilogb(Rule::kMuchWork)) + " or more and at least " +
                       number(Rule::kManyTiles) + " tiles of " + number(2 * rule.tile_m) + " x " + number(rule.tile_n) +
                       " for each multiprocessor"
                 : "where tiles of " + number(2 * rule.tile_m) + " x " + number(rule.tile_n) +
                       " take more than one round, and hardly more time in rounds than those of half their rows";
  }
  return x;
}

const Entry* find_product(DType out, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k, const Chip& device,
                          std::string_view cublaslt) {
  const Entry* entry = find(table().part(product_name(out), layout), table().nearest(device), m, n, k);
  return entry && (cublaslt.empty() || entry->cublaslt == cublaslt) ? entry : nullptr;
}

}  // namespace coda::sm90
