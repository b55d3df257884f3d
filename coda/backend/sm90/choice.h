// Which kernel a call runs as: what a table of measured shapes says, else a rule. Host code that is the same in a build
// without CUDA.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/backend/sm90/schedule.h"
#include "coda/core/tensor.h"

namespace coda::sm90 {

/// How a program runs on a product: in one fused kernel where that fits and pays, else as cuBLASLt's product and a
/// kernel behind it. The other two are for comparisons: fused wherever it fits, or never. Of the calling thread.
enum class Way : std::uint8_t { automatic, fused, unfused };
void set_way(Way way);
Way way();

constexpr const char* name_of(Way w) {
  constexpr const char* names[] = {"automatic", "fused", "unfused"};
  return names[static_cast<int>(w)];
}

/// The order in which a fused kernel walks over tiles: along m or n, in bands of `band` clusters. A band keeps the
/// operands of the tiles in flight in the L2 cache.
struct Raster {
  int band = 8;
  bool along_m = true;
  bool operator==(const Raster&) const = default;
};

/// What a call runs as.
struct Choice {
  Way way = Way::fused;  // fused or unfused
  int config = 0;        // which of the configurations that the program's fused kernel is built in
  Raster raster = {};
  int tiles = 0;  // of a row, that a thread block of the elementwise kernel takes; 0: by the size of the matrix
  bool operator==(const Choice&) const = default;
};
/// "unfused", or "fused, configuration 0, bands of 8 along m"; a configuration that splits K knows no bands.
std::string text_of(const Choice& choice, bool splits_k = false);

/// Every call of the calling thread runs as `choice` says, wherever a fused kernel takes its arguments, until the next
/// set_way; unfused, if the program is not built in that configuration. For `coda tune` and tests.
void set_choice(const Choice& choice);
/// Tiles that set_choice asked for, else 0.
int chosen_tiles();

/// An algorithm of cuBLASLt, for products in no fused kernel: the values of its CUBLASLT_ALGO_CONFIG_ attributes,
/// which mean something for one version of the library and kind of chip.
struct Algorithm {
  int id = -1;  // -1: the one that cuBLASLt's heuristic puts first
  int tile = 0, stages = 0, split_k = 1, reduction = 0, swizzle = 0, custom = 0, inner_shape = 0, cluster_shape = 0;
  bool operator==(const Algorithm&) const = default;
};
/// "cuBLASLt's own choice", or "cuBLASLt's algorithm 66, tile 197, .."
std::string text_of(const Algorithm& algorithm);

/// Every product of cuBLASLt that the calling thread asks for runs by `algorithm`, if that takes it, until the next
/// call; without a value by what the table says. For `coda tune` and tests.
void set_algorithm(const std::optional<Algorithm>& algorithm);
const std::optional<Algorithm>& chosen_algorithm();

/// What of a device decides which choice is fast. An H100 and an H200 differ in their memory alone.
struct Chip {
  int multiprocessors = 0;
  int memory_gbs = 0;  // bandwidth in 10^9 bytes a second, as clock and width of its bus have it
  /// As an H200's 4814 or more, where an H100 has 3352.
  constexpr bool has_fast_memory() const { return memory_gbs >= 4200; }
  auto operator<=>(const Chip&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 means its 0
};

/// The least K from which on a program takes its lean configuration, by the chip's memory. An H100 needs about as many
/// cycles for it there as for the other, and less energy.
struct LeanFrom {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t fast = 8192, slow = 8192;
  bool operator==(const LeanFrom&) const = default;
};

/// Multiplications of a product. Of sides that no 64 bits hold the product of.
constexpr double work_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// What runs where nothing was measured: `tile_m` x `tile_n` are those of the first configuration, `few_rows` the
/// number of the one that splits K (splitk.cuh), -1 if there is none, which is for up to `most` rows, `lean` that of
/// the one whose teams multiply at the same time, or -1: it draws less power and reads less memory, but nothing hides
/// its epilogue.
struct Rule {
  static constexpr int kFewRows = 64;  // of a tile of the one that splits K
  static constexpr double kNoEnd = std::numeric_limits<double>::infinity();
  int tile_m = 128, tile_n = 128;
  int few_rows = -1, most = kFewRows;
  int lean = -1;
  LeanFrom lean_from = {};
  double until = kNoEnd;     // M N K from which on it is unfused
  bool fast_memory = false;  // it is unfused with slower memory
  /// With fast memory the lean configuration pays from some 6 ms on, and where few multiprocessors idle in its last
  /// round: with so many tiles of twice the rows for each.
  static constexpr double kMuchWork = 0x1p41;
  static constexpr int kManyTiles = 12;
  std::int64_t lean_k(const Chip& chip) const { return chip.has_fast_memory() ? lean_from.fast : lean_from.slow; }
  bool takes_lean(std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip) const;

  /// The order of tiles in a configuration. An H100 whose teams take turns needs 3 to 8 % less energy in bands of 22
  /// rows of tiles, all about as wide, or of 4 columns of clusters than of 8 columns, though it reads as much from its
  /// memory and from the L2 cache.
  Raster raster(int config, std::int64_t m, const Chip& chip) const;

  /// Few rows, or tiles that all run at once and fill the chip, are for the one that splits K. Else, until larger tiles
  /// fill it, the unfused way is faster: cuBLASLt splits K, too, and the elementwise kernel behind it has little to do.
  /// A long K is for the lean one.
  Choice operator()(std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip) const;
  bool operator==(const Rule&) const = default;
};

/// M N K of some 5 ms: from there on power bounds.
inline constexpr double kLongWork = 0x3p39;

/// Whether the clusters of a fused kernel keep pace with each other (pace.cuh), which take `tiles` tiles each. Those of
/// few tiles do not drift far apart. With fast memory it pays where power bounds.
constexpr bool keeps_pace(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t tiles, const Chip& chip) {
  constexpr std::int64_t kLeastTiles = 8;
  return tiles >= kLeastTiles && (!chip.has_fast_memory() || work_of(m, n, k) >= kLongWork);
}

/// A program of the library that has fused kernels; `coda::sm90::kName` ties its C++ types to the name.
struct FusedProgram {
  std::string_view name;
  bool nt, nn;                     // layouts that they are built for
  int configurations;              // that they are built in; the rule takes the first one
  const char* only = "";           // variants of the program that have them, if not all do
  std::string_view measured_as{};  // the program whose entries in the table serve it, if not its own
  Rule rule = {};
};
inline constexpr Rule kForwardRule{.few_rows = 1, .lean = 2, .lean_from = {.slow = 4096}};
inline constexpr Rule kQkNormRule{.few_rows = 2, .lean = 3, .lean_from = {.fast = LeanFrom::kNever}};
inline constexpr Rule kActivationBackwardRule{
    .few_rows = 2, .most = 32, .lean = 3, .lean_from = {.fast = LeanFrom::kNever}};
/// On an H200 as fast as cuBLASLt's own choice or faster, but with few rows, and for long, which draws less power.
inline constexpr Rule kProductRule{.few_rows = 1, .most = 0, .until = kLongWork, .fast_memory = true};
inline constexpr Rule kGluBackwardRule{.few_rows = 2, .most = 32};
// clang-format off
inline constexpr FusedProgram kFusedPrograms[] = {
    {"gemm", true, true, 2, "with a bias or a kept pre-activation", "", {.few_rows = 1}},
    {"product", true, true, 2, "", "", kProductRule},
    {"gemm_rms", true, false, 3, "identity, silu, gelu_tanh", "", kForwardRule},
    {"gemm_layernorm", true, false, 4, "identity, gelu_tanh", "", {.few_rows = 2, .lean = 3}},
    {"gemm_rms_swiglu", true, false, 3, "", "", kForwardRule},
    {"gemm_rms_geglu_tanh", true, false, 3, "", "gemm_rms_swiglu", kForwardRule},
    {"gemm_rms_reglu", true, false, 3, "", "gemm_rms_swiglu", kForwardRule},
    {"gemm_residual_rms", true, true, 3, "", "", {.few_rows = 1, .lean = 2}},
    {"gemm_residual_layernorm", true, true, 3, "", "", {.few_rows = 1, .lean = 2}},
    {"gemm_rms_rope", true, false, 3, "RMSNorm", "", kForwardRule},
    {"gemm_rms_rotate", true, false, 3, "RMSNorm", "gemm_residual_rms", {.few_rows = 1, .lean = 2}},
    {"gemm_rms_qknorm_rope", true, false, 4, "RMSNorm", "", kQkNormRule},
    {"gemm_lse", true, false, 2, "RMSNorm", "", {.lean = 1}},
    {"gemm_cross_entropy_backward", true, false, 1, "RMSNorm"},
    {"gemm_rms_backward", false, true, 3, "", "", {.lean = 2, .lean_from = {.slow = 16384}}},
    {"gemm_swiglu_backward", false, true, 3, "RMSNorm", "", kGluBackwardRule},
    {"gemm_geglu_tanh_backward", false, true, 3, "RMSNorm", "gemm_swiglu_backward", kGluBackwardRule},
    {"gemm_reglu_backward", false, true, 3, "RMSNorm", "gemm_swiglu_backward", kGluBackwardRule},
    {"gemm_activation_backward", false, true, 4, "RMSNorm; silu, gelu_tanh", "", kActivationBackwardRule},
};
// clang-format on
/// Null if there is no fused kernel of this name.
constexpr const FusedProgram* find_fused(std::string_view name) {
  for (const FusedProgram& p : kFusedPrograms)
    if (p.name == name) return &p;
  return nullptr;
}

/// The name that a program's measurements have.
constexpr std::string_view measured_as(std::string_view name) {
  const FusedProgram* p = find_fused(name);
  return p && !p->measured_as.empty() ? p->measured_as : name;
}

/// The copy engine clips a row only at 16 bytes, and a fused kernel multiplies at least once.
constexpr bool sides_fit(std::int64_t n, std::int64_t k) { return k > 0 && k % 8 == 0 && n % 8 == 0; }

/// A measured shape: for one program and layout on one chip.
struct Entry {
  std::string program;  // or product_name
  Layout layout = Layout::nt;
  Chip chip;
  std::int64_t n = 0, k = 0, m = 0;
  Choice choice;
  Algorithm algorithm;  // of a product, where it is cuBLASLt's
  // As chosen, as the rule would have it (of a product: by cuBLASLt's own choice), and unfused.
  double ms = 0, rule_ms = 0, unfused_ms = 0;
  std::string origin;    // where it is from, for people
  std::string cublaslt;  // the version that it was measured with
};

/// The name under which the table has products that no program follows, and those ahead of unfused programs: by the
/// type of what they write, 16 bits or 32. The former have a fused kernel, too: one without an epilogue (BareGemm).
constexpr std::string_view product_name(DType out) { return out == DType::fp32 ? "product_fp32" : "product"; }
constexpr bool is_product(std::string_view name) {
  return name == product_name(DType::bf16) || name == product_name(DType::fp32);
}

/// Measured shapes. Never changed while it is in use, so that it is read without a lock.
class Table {
 public:
  /// Adds the entries of a file of `coda tune`, in place of those of the same shape. A chip that is new starts with the
  /// entries of the nearest, which served it until then. Throws Error(invalid_argument) naming `origin` and the member
  /// if it is none; the table is then as it was.
  void add(const std::string& json, const std::string& origin);
  /// The entries of one program and layout, in the order of chip, n, k, m.
  std::span<const Entry> part(std::string_view program, Layout layout) const;
  /// The chip whose entries serve a device: of those with as many multiprocessors the one whose memory is nearest in
  /// ratio to the device's. The device's own if there is none.
  Chip nearest(const Chip& device) const;
  const std::vector<Entry>& all() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::vector<Chip> chips_;  // of all files
};

/// The entry for a shape: its own, or else, of those with its N and K and at most a quarter more or fewer rows, the
/// nearest. Null if there is none.
const Entry* find(std::span<const Entry> part, const Chip& chip, std::int64_t m, std::int64_t n, std::int64_t k);

/// The tables that ship with the library and, in front of them, the file that the environment variable CODA_TUNING
/// names. All are read at the first call. A file that cannot be used is told once on stderr and left out: it makes
/// nothing wrong, only slower.
const Table& table();
/// The file of CODA_TUNING, empty if there is none, and what is wrong with it, empty if nothing is.
struct UserTable {
  std::string path, error;
};
const UserTable& user_table();

/// What a call runs as: what set_choice and set_way ask for, else what `part` says of `chip` (see Table::nearest), else
/// the rule. Takes no lock and allocates nothing.
Choice choose(std::span<const Entry> part, const Rule& rule, int configurations, std::int64_t m, std::int64_t n,
              std::int64_t k, const Chip& chip);

/// The same for people: `why` is a sentence. `head_dim` is 0 where the program has no heads. M, N, K are at least 1.
struct Explanation {
  Choice choice;
  std::string why;
  const Entry* entry = nullptr;  // that decided
  bool splits_k = false;         // whether the chosen configuration does
  /// Of a fused kernel that does not: rows of a tile, steps along K, and how tiles go round.
  int tile_m = 0;
  std::int64_t steps = 0;
  std::optional<Rounds> rounds = {};
};
/// "31 of 66 tiles of 128 x 256, and one of 2, of whose 128 steps along K their clusters do 16 and others the rest"
std::string text_of(const Rounds& rounds, int tile_m, std::int64_t steps);
Explanation explain(std::string_view program, DType dtype, Layout layout, std::int64_t m, std::int64_t n,
                    std::int64_t k, std::int64_t head_dim, const Chip& device);

/// The entry that says by which of cuBLASLt's algorithms a product runs that writes `out`, where no kernel of ours
/// does. Null if it was not measured, or not with `cublaslt`, that library's version (empty: any): its heuristic
/// decides.
const Entry* find_product(DType out, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k, const Chip& device,
                          std::string_view cublaslt);

}  // namespace coda::sm90
