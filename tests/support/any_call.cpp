#include "tests/support/any_call.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "tests/c/members.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMemory = 1 << 16;
constexpr double kMostBytes = 0x1p62;  // of a view that there can be

std::size_t size_of(coda_dtype type) {
  constexpr std::size_t kSizes[] = {2, 2, 4, 8, 4, 8};
  return type < std::size(kSizes) ? kSizes[type] : 8;
}

/// A view's rows in bytes; of a vector the only one.
struct Extent {
  std::int64_t rows, width, pitch;  // bytes
};

double end_of(const Extent& e) {
  return static_cast<double>(e.rows - 1) * static_cast<double>(e.pitch) + static_cast<double>(e.width);
}

/// Nothing where the view is one that every call refuses, or is empty.
std::optional<Extent> extent_of(coda_dtype type, std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  if (rows <= 0 || cols <= 0 || (rows > 1 && pitch < cols)) return std::nullopt;
  const auto bytes = static_cast<std::int64_t>(size_of(type));
  if (end_of({rows, cols, rows > 1 ? pitch : 0}) * static_cast<double>(bytes) > kMostBytes) return std::nullopt;
  return Extent{rows, cols * bytes, rows > 1 ? pitch * bytes : 0};
}
std::optional<Extent> extent_of(const coda_matrix& x) { return extent_of(x.dtype, x.rows, x.cols, x.pitch); }
std::optional<Extent> extent_of(const coda_const_matrix& x) { return extent_of(x.dtype, x.rows, x.cols, x.pitch); }
std::optional<Extent> extent_of(const coda_vector& x) { return extent_of(x.dtype, 1, x.size, x.size); }
std::optional<Extent> extent_of(const coda_const_vector& x) { return extent_of(x.dtype, 1, x.size, x.size); }
std::optional<Extent> extent_of(const coda_workspace& x) {
  if (x.bytes > kMemory) return Extent{2, 1, kMemory};  // more than there is
  return Extent{1, static_cast<std::int64_t>(x.bytes), 0};
}

template <class T>
concept View = requires(T& x) { extent_of(x); };
template <class T>
concept Writable =
    std::is_same_v<T, coda_matrix> || std::is_same_v<T, coda_vector> || std::is_same_v<T, coda_workspace>;

/// f(member) of a struct and of the structs in it.
template <class Struct, class F>
void for_each_leaf(Struct& x, F&& f) {
  for_each_member(x, [&]<class T>(T& member) {
    if constexpr (requires { for_each_member(member, f); }) for_each_leaf(member, f);
    else f(member);
  });
}

/// The memory of one call, twice: as it is, and as it was.
class Memory {
 public:
  explicit Memory(std::span<const std::uint8_t> begin) : now_(std::make_unique<std::uint8_t[]>(kMemory)) {
    std::copy_n(begin.data(), std::min(begin.size(), kMemory), now_.get());
    was_.assign(now_.get(), now_.get() + kMemory);
  }

  template <class T>
  bool place(T& view) {
    if (view.data == nullptr) return true;
    const std::size_t at = reinterpret_cast<std::uintptr_t>(view.data) % kMemory;
    view.data = now_.get() + at;
    const std::optional<Extent> e = extent_of(view);
    if (!e) return true;
    if (end_of(*e) > static_cast<double>(kMemory - at)) return false;
    if constexpr (Writable<T>) outputs_.emplace_back(at, *e);
    return true;
  }
  bool changed() const { return std::memcmp(now_.get(), was_.data(), kMemory) != 0; }
  bool changed_outside_of_outputs() {
    for (const auto& [at, e] : outputs_) {
      for (std::int64_t row = 0; row < e.rows; ++row) {
        const std::size_t first = at + static_cast<std::size_t>(row * e.pitch);
        std::copy_n(now_.get() + first, e.width, was_.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
    return changed();
  }

 private:
  std::unique_ptr<std::uint8_t[]> now_;  // alone, so that a sanitizer knows its end
  Bytes was_;
  std::vector<std::pair<std::size_t, Extent>> outputs_;
};

template <class Args>
AnyOutcome run(const std::string& operation, coda_status (*call)(const Args*), std::span<const std::uint8_t> bytes) {
  Args args;
  if (bytes.size() < sizeof args) return {};
  // A bool holds 0 or 1, whatever its byte.
  Bytes copy(bytes.begin(), bytes.begin() + sizeof args);
  for_each_leaf(args, [&]<class T>(T& member) {
    if constexpr (std::is_same_v<T, bool>) {
      copy[static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(&member) -
                                    reinterpret_cast<std::uint8_t*>(&args))] &= 1;
    }
  });
  std::memcpy(&args, copy.data(), sizeof args);

  Memory memory(bytes.subspan(sizeof args));
  bool exists = true;
  std::int64_t traffic = 0;
  for_each_leaf(args, [&]<class T>(T& member) {
    if constexpr (View<T>) exists = memory.place(member) && exists;
    if constexpr (std::is_same_v<T, std::int64_t*>) member = member ? &traffic : nullptr;
    if constexpr (std::is_same_v<T, void*>) member = nullptr;  // a stream
  });
  if (!exists) return {};

  const coda_status status = call(&args);
  AnyOutcome outcome{.ran = true, .succeeded = status == CODA_OK, .broken = {}};
  const std::string message = coda_last_error();
  if (status == CODA_OK) {
    if (memory.changed_outside_of_outputs()) outcome.broken = operation + " wrote outside of its outputs";
  } else if (status != CODA_INVALID_ARGUMENT && status != CODA_UNSUPPORTED) {
    outcome.broken = operation + " gave status " + std::to_string(status) + ": " + message;
  } else if (message.rfind(operation + ": ", 0) != 0) {
    outcome.broken = operation + " gave a message that does not begin with its name: " + message;
  } else if (memory.changed()) {
    outcome.broken = operation + " wrote something and failed: " + message;
  }
  return outcome;
}

struct Operation {
  std::string name;
  std::size_t size;
  std::function<AnyOutcome(std::span<const std::uint8_t>)> run;
  /// Puts the views of these arguments' bytes into memory of their own, and the pointers to it into the bytes.
  std::function<void(Bytes& args, Bytes& memory)> gather;
};

template <class Args>
void gather(Bytes& bytes, Bytes& memory) {
  Args args;
  std::memcpy(&args, bytes.data(), sizeof args);
  std::vector<std::pair<const void*, std::size_t>> placed;  // an output in place of an input stays there
  const auto place = [&]<class T>(T& view) {
    if (view.data == nullptr) return;
    const std::optional<Extent> e = extent_of(view);
    const auto* data = static_cast<const std::uint8_t*>(view.data);
    const auto known = std::find_if(placed.begin(), placed.end(), [&](const auto& p) { return p.first == data; });
    std::size_t at = memory.size();
    if (known != placed.end()) {
      at = known->second;
    } else {
      placed.emplace_back(data, at);
      if (e) memory.insert(memory.end(), data, data + (e->rows - 1) * e->pitch + e->width);
      memory.resize((memory.size() + 127) / 64 * 64);
    }
    view.data = reinterpret_cast<decltype(view.data)>(kMemory + at);
  };
  for_each_leaf(args, [&]<class T>(T& member) {
    if constexpr (View<T> && !std::is_same_v<T, coda_workspace>) place(member);
  });
  std::memcpy(bytes.data(), &args, sizeof args);
}

const std::vector<Operation>& operations() {
  static const auto* all = [] {
    auto* made = new std::vector<Operation>;  // never destroyed: a fuzzer ends as it likes
    for_each_call([&]<class Args>(const char* name, Args (*)(), coda_status (*call)(const Args*)) {
      made->push_back({name, sizeof(Args), [=](std::span<const std::uint8_t> bytes) { return run(name, call, bytes); },
                       gather<Args>});
    });
    return made;
  }();
  return *all;
}

}  // namespace

AnyOutcome run_any_call(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return {};
  return operations()[bytes[0] % operations().size()].run(bytes.subspan(1));
}

std::vector<std::uint8_t> bytes_of_call(const std::string& operation, const void* args, std::size_t size) {
  const auto& all = operations();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Operation& o) { return o.name == operation; });
  if (found == all.end() || found->size != size) return {};
  const auto* first = static_cast<const std::uint8_t*>(args);
  Bytes bytes(first, first + size), memory;
  found->gather(bytes, memory);
  bytes.insert(bytes.begin(), static_cast<std::uint8_t>(found - all.begin()));
  bytes.insert(bytes.end(), memory.begin(), memory.end());
  return bytes;
}

Mutations run_mutations(const std::vector<std::uint8_t>& call, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  Mutations result;
  const std::size_t words = operations()[call[0]].size / 8;
  for (std::int64_t i = 0; i < count && result.broken.empty(); ++i) {
    Bytes bytes = call;
    const auto word = [&] { return bytes.data() + 1 + 8 * random.integer(0, static_cast<std::int64_t>(words) - 1); };
    for (std::int64_t changes = random.integer(1, 3); changes > 0; --changes) {
      std::uint8_t* const at = word();
      std::int64_t value = 0;
      std::memcpy(&value, at, 8);
      switch (random.integer(0, 6)) {
        case 0:
          value = random.integer(-2, 20);
          break;
        case 1:
          value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + random.next() % 5 - 2);
          break;
        case 2:
          value = static_cast<std::int64_t>(random.next()) >> random.integer(0, 63);
          break;
        case 3:
          value = std::int64_t{1} << random.integer(0, 62);
          break;
        case 4:
          std::memcpy(&value, word(), 8);
          break;
        case 5:
          value = 0;
          break;
        default:
          at[random.integer(0, 7)] = static_cast<std::uint8_t>(random.next());
          std::memcpy(&value, at, 8);
      }
      std::memcpy(at, &value, 8);
    }
    if (random.integer(0, 3) == 0) {
      const auto first = static_cast<std::int64_t>(1 + 8 * words), last = static_cast<std::int64_t>(bytes.size()) - 1;
      if (last >= first)
        bytes[static_cast<std::size_t>(random.integer(first, last))] = static_cast<std::uint8_t>(random.next());
    }
    const AnyOutcome outcome = run_any_call(bytes);
    result.ran += outcome.ran;
    result.succeeded += outcome.succeeded;
    result.broken = outcome.broken;
  }
  return result;
}

}  // namespace coda::test
