#include "coda/ops/check.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace coda::ops {
namespace {

// More than any address space has; sums of such sizes do not overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

}  // namespace

Check::Check(const char* operation, const Target& on) : operation_(operation) {
  if (on.backend == Backend::sm90) reach_.emplace(on.stream);
  check_backend(*this, "on.backend", on.backend);
}

DType Check::real(const char* name, DType t) const {
  if (t > DType::fp64) fail(name, "expected dtype bf16, fp16, fp32 or fp64, got {}", coda::name_of(t));
  return t;
}

void Check::matrix(const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols, DType t) const {
  if (absent(m) && rows > 0 && cols > 0)
    fail(name, "expected a matrix ({}, {}) of dtype {}, got none", rows, cols, coda::name_of(t));
  if (m.dtype != t) fail(name, "expected dtype {}, got {}", coda::name_of(t), coda::name_of(m.dtype));
  if (m.rows < 0 || m.cols < 0) fail(name, "expected sizes of at least 0, got ({}, {})", m.rows, m.cols);
  if (m.rows != rows || m.cols != cols) fail(name, "expected shape ({}, {}), got ({}, {})", rows, cols, m.rows, m.cols);
  if (m.rows > 1 && m.pitch < m.cols) fail(name, "expected a pitch of at least {} elements, got {}", m.cols, m.pitch);
  if (rows > 0 && cols > 0) {
    if (!m.data) fail(name, "expected a matrix ({}, {}), got a null pointer", rows, cols);
    if (std::max(cols, rows > 1 ? m.pitch : 0) > kMostBytes / size_of(t) / rows) {
      fail(name, "expected less than 2^62 bytes, got {} rows with a pitch of {}", rows, m.pitch);
    }
    const auto size = static_cast<std::uintptr_t>(size_of(t));
    if (reinterpret_cast<std::uintptr_t>(m.data) % size != 0) {
      fail(name, "expected a pointer aligned to {} bytes, got one {} bytes off", size,
           reinterpret_cast<std::uintptr_t>(m.data) % size);
    }
    reachable(name, m.data);
  }
}

void Check::vector(const char* name, const ConstVector& v, std::int64_t size, DType t) const {
  if (absent(v) && size > 0) fail(name, "expected {} values of dtype {}, got none", size, coda::name_of(t));
  if (v.dtype != t) fail(name, "expected dtype {}, got {}", coda::name_of(t), coda::name_of(v.dtype));
  if (v.size < 0) fail(name, "expected a size of at least 0, got {}", v.size);
  if (v.size != size) fail(name, "expected {} values, got {}", size, v.size);
  if (size > 0) {
    if (!v.data) fail(name, "expected {} values, got a null pointer", size);
    if (size > kMostBytes / size_of(t)) fail(name, "expected less than 2^62 bytes, got {} values", size);
    const auto bytes = static_cast<std::uintptr_t>(size_of(t));
    if (reinterpret_cast<std::uintptr_t>(v.data) % bytes != 0) {
      fail(name, "expected a pointer aligned to {} bytes, got one {} bytes off", bytes,
           reinterpret_cast<std::uintptr_t>(v.data) % bytes);
    }
    reachable(name, v.data);
  }
}

void Check::reachable(const char* name, const void* data) const {
  if (!reach_) return;
  std::string what;
  if (!(*reach_)(data, &what)) fail(name, "expected memory of the device, got {}", what);
}

void Check::indices(const char* name, const ConstVector& v, std::int64_t size) const {
  if (v.dtype != DType::int32 && v.dtype != DType::int64) {
    if (absent(v)) {
      if (size == 0) return;
      fail(name, "expected {} values of dtype int32 or int64, got none", size);
    }
    fail(name, "expected dtype int32 or int64, got {}", coda::name_of(v.dtype));
  }
  vector(name, v, size, v.dtype);
}

void Check::same_pitch(const char* name, const ConstMatrix& m, const char* other_name, const ConstMatrix& other) const {
  if (m.rows <= 1 || m.cols <= 0 || m.pitch == other.pitch) return;
  fail(name, "expected the pitch of {}, {}, got {}", other_name, other.pitch, m.pitch);
}

void Check::no_overlap() const {
  for (int i = 0; i < outputs_.size(); ++i) {
    for (int j = i + 1; j < outputs_.size(); ++j) {
      if (outputs_[i].memory.overlaps(outputs_[j].memory)) {
        fail(outputs_[j].name, "expected memory of its own, got memory that overlaps the output {}", outputs_[i].name);
      }
    }
    for (const Named& in : inputs_) {
      if (in.in_place && outputs_[i].memory == in.memory) continue;
      if (outputs_[i].memory.overlaps(in.memory)) {
        fail(outputs_[i].name, "expected memory of its own, got memory that overlaps the input {}{}", in.name,
             in.in_place ? " without being exactly it" : "");
      }
    }
  }
}

Product check_product(Check& check, const ConstMatrix& a, const ConstMatrix& b, Layout layout, const char* b_name) {
  if (layout != Layout::nt && layout != Layout::nn && layout != Layout::tn) {
    check.fail("layout", "expected nt, nn or tn, got {}", static_cast<int>(layout));
  }
  const bool a_km = layout == Layout::tn, b_kn = layout != Layout::nt;
  // One that was forgotten has neither the other's dtype nor its inner dimension, which would then seem to be wrong.
  const auto given = [&](const char* name, const ConstMatrix& x, const char* other_name, std::int64_t inner) {
    if (absent(x) && inner > 0) {
      check.fail(name, "expected a matrix with an inner dimension of {}, as {} has in layout {}, got none", inner,
                 other_name, coda::name_of(layout));
    }
  };
  given("a", a, b_name, b_kn ? b.rows : b.cols), given(b_name, b, "a", a_km ? a.rows : a.cols);
  check.real("a", a.dtype);
  for (const auto& [name, m] : {std::pair{"a", &a}, std::pair{b_name, &b}}) {
    check.matrix(name, *m, m->rows, m->cols, a.dtype);
  }
  const Product p{a_km ? a.cols : a.rows, b_kn ? b.cols : b.rows, a_km ? a.rows : a.cols, a.dtype, stats_of(a.dtype)};
  const std::int64_t kb = b_kn ? b.rows : b.cols;
  if (kb != p.k) {
    check.fail(b_name, "expected an inner dimension of {}, as a has in layout {}, got {}", p.k, coda::name_of(layout),
               kb);
  }
  check.operand("a", a);
  check.operand(b_name, b);
  return p;
}

void check_beta(const Check& check, double beta) {
  if (beta != 0 && beta != 1) check.fail("beta", "expected 0 (write) or 1 (add), got {}", beta);
}
void check_factor(const Check& check, const char* name, double x, DType t) {
  if (!std::isfinite(scalar_in(t, x))) check.fail(name, "expected a finite number in {}, got {}", coda::name_of(t), x);
}
void check_eps(const Check& check, const char* name, double eps, DType stats) {
  if (eps >= 0 && std::isfinite(scalar_in(stats, eps))) return;
  check.fail(name, "expected a finite number of at least 0 in {}, got {}", coda::name_of(stats), eps);
}

void check_backend(const Check& check, const char* name, Backend backend) {
  if (backend == Backend::cpu || backend == Backend::sm90) return;
  check.fail(name, "expected cpu or sm90, got {}", static_cast<int>(backend));
}

void check_fp32_on_sm90(const Check& check, const char* argument, DType t) {
  if (t == DType::fp32) return;
  check.fail(Status::unsupported, argument, "expected fp32 on the sm90 backend, got {}", coda::name_of(t));
}

}  // namespace coda::ops
