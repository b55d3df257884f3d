#include "coda/nn/passes.h"

#include <cmath>
#include <limits>

#include "coda/backend/cpu/threads.h"
#include "coda/nn/convert.h"
#include "coda/nn/vectors.h"

namespace coda::nn::passes {
namespace {

template <class F>
void with_type(DType dtype, const F& f) {
  visit_real(dtype, [&]<class T>(std::type_identity<T>) { f(T{}); });
}

template <class F>
void for_rows(std::int64_t rows, const F& f) {
  cpu::for_each(rows, true, f);
}

/// f(block, m, whether m is the block's first row) for each row; blocks in parallel, each from top to bottom.
template <class F>
void for_row_blocks(std::int64_t rows, const F& f) {
  const std::int64_t blocks = row_blocks(rows);
  cpu::for_each(blocks, true, [&](std::int64_t b) {
    const std::int64_t first = b * kRowBlock, last = std::min(rows, first + kRowBlock);
    for (std::int64_t m = first; m < last; ++m) f(b, m, m == first);
  });
}

const std::int32_t* index_data(const ConstVector& v) { return static_cast<const std::int32_t*>(v.data); }

template <class T>
const T* data_of(const ConstVector& v) {
  return static_cast<const T*>(v.data);
}
template <class T>
T* data_of(const Vector& v) {
  return static_cast<T*>(v.data);
}

/// partial[columns] += x, or = x in the first row of a block.
template <class Acc>
void accumulate(Acc* partial, Columns at, Simd<Acc, kLanes<Acc>> x, bool first) {
  store(partial, at, first ? x : x + load(partial, at));
}

/// f(first column, weight of that head) for each q and k head.
template <class T, class F>
void for_heads(const ops::Heads& h, const ConstVector& q_weight, const ConstVector& k_weight, const F& f) {
  for (std::int64_t i = 0; i < h.q + h.k; ++i) f(i * h.head_dim, data_of<T>(i < h.q ? q_weight : k_weight));
}

/// Adjacent pairs of a row in registers of even and of odd columns; `at` counts pairs.
template <class T>
struct Pairs {
  static constexpr int kLow = kLanes<acc_t<T>>;
  Columns low, high;

  explicit Pairs(Columns at)
      : low{2 * at.first, std::min(kLow, 2 * at.count)}, high{2 * at.first + kLow, std::max(0, 2 * at.count - kLow)} {}
  template <class U>
  CODA_FN auto load(const U* row) const {
    return deinterleave(nn::load(row, low), nn::load(row, high));
  }
  CODA_FN void store(T* row, Lane<T> even, Lane<T> odd) const {
    const auto [first, second] = interleave(even, odd);
    nn::store(row, low, first);
    nn::store(row, high, second);
  }
};

template <class T>
void copy_columns(const T* in, std::int64_t first, std::int64_t last, T* out) {
  if (in != out) std::copy(in + first, in + last, out + first);
}

}  // namespace

void embedding(const ConstMatrix& table, const ConstVector& token, const Matrix& out) {
  with_type(table.dtype, [&]<class T>(T) {
    const auto from = table.as<T>();
    const auto to = out.as<T>();
    for_rows(to.rows, [&](std::int64_t m) { std::copy_n(from.row(index_data(token)[m]), to.cols, to.row(m)); });
  });
}

void add(const ConstMatrix& a, const ConstMatrix& b, const Matrix& out) {
  with_type(a.dtype, [&]<class T>(T) {
    const auto x = a.as<T>(), y = b.as<T>();
    const auto to = out.as<T>();
    for_rows(to.rows, [&](std::int64_t m) {
      for_columns<T>(to.cols, [&](Columns at) { store(to.row(m), at, load(x.row(m), at) + load(y.row(m), at)); });
    });
  });
}

void rms_norm(const ConstMatrix& x, const ConstVector& weight, double eps, const Matrix& out, const Vector& rstd) {
  with_type(x.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto in = x.as<T>();
    const auto to = out.as<T>();
    const T* w = data_of<T>(weight);
    for_rows(in.rows, [&](std::int64_t m) {
      const T* row = in.row(m);
      const Acc square = sum_columns<T>(in.cols, [&](Columns at) { return load(row, at) * load(row, at); });
      const Acc r = 1 / std::sqrt(square / static_cast<Acc>(in.cols) + static_cast<Acc>(eps));
      data_of<Acc>(rstd)[m] = r;
      for_columns<T>(in.cols, [&](Columns at) { store(to.row(m), at, load(row, at) * Lane<T>(r) * load(w, at)); });
    });
  });
}

void rms_norm_backward(const ConstMatrix& x, const ConstVector& weight, const ConstVector& rstd,
                       const ConstMatrix& dout, const Matrix& dx, const Matrix& dweight) {
  with_type(x.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto in = x.as<T>(), grad = dout.as<T>();
    const auto to = dx.as<T>();
    const auto partial = dweight.as<Acc>();
    const T* w = data_of<T>(weight);
    for_row_blocks(in.rows, [&](std::int64_t block, std::int64_t m, bool first) {
      const T *row = in.row(m), *d = grad.row(m);
      const Acc r = data_of<Acc>(rstd)[m];
      const Acc dot = sum_columns<T>(in.cols, [&](Columns at) { return load(row, at) * load(d, at) * load(w, at); });
      const Lane<T> scale(r), mean(dot * r / static_cast<Acc>(in.cols));
      for_columns<T>(in.cols, [&](Columns at) {
        const auto n = load(row, at) * scale, g = load(d, at);
        accumulate(partial.row(block), at, g * n, first);
        store(to.row(m), at, scale * (g * load(w, at) - n * mean));
      });
    });
  });
}

void rotate(const ConstMatrix& in, const ops::Heads& heads, bool back, const Matrix& out) {
  with_type(in.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto from = in.as<T>();
    const auto to = out.as<T>();
    const auto table = heads.table.as<Acc>();
    const std::int64_t rotated = (heads.q + heads.k) * heads.head_dim, dim = heads.head_dim;
    const Acc sign = back ? Acc(-1) : Acc(1);
    for_rows(from.rows, [&](std::int64_t m) {
      const Acc* angle = table.row(index_data(heads.position)[m]);
      const T* x = from.row(m);
      T* y = to.row(m);
      for (std::int64_t head = 0; head < rotated; head += dim) {
        for_columns<T>(dim / 2, [&](Columns at) {
          const Pairs<T> pairs(at);
          const auto [even, odd] = pairs.load(x + head);
          const auto [cosine, sine] = pairs.load(angle);
          const auto s = sine * Lane<T>(sign);
          pairs.store(y + head, even * cosine - odd * s, even * s + odd * cosine);
        });
      }
      copy_columns(x, rotated, from.cols, y);
    });
  });
}

void head_norm(const ConstMatrix& in, const ops::Heads& heads, const ConstVector& q_weight, const ConstVector& k_weight,
               double eps, const Matrix& out) {
  with_type(in.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto from = in.as<T>();
    const auto to = out.as<T>();
    const std::int64_t dim = heads.head_dim;
    for_rows(from.rows, [&](std::int64_t m) {
      for_heads<T>(heads, q_weight, k_weight, [&](std::int64_t first, const T* w) {
        const T* x = from.row(m) + first;
        const Acc square = sum_columns<T>(dim, [&](Columns at) { return load(x, at) * load(x, at); });
        const Lane<T> r(1 / std::sqrt(square / static_cast<Acc>(dim) + static_cast<Acc>(eps)));
        for_columns<T>(dim, [&](Columns at) { store(to.row(m) + first, at, load(x, at) * r * load(w, at)); });
      });
      copy_columns(from.row(m), (heads.q + heads.k) * dim, from.cols, to.row(m));
    });
  });
}

void head_norm_backward(const ConstMatrix& in, const ops::Heads& heads, const ConstVector& q_weight,
                        const ConstVector& k_weight, double eps, const ConstMatrix& dout, const Matrix& din,
                        const Matrix& dweight) {
  with_type(in.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto from = in.as<T>(), grad = dout.as<T>();
    const auto to = din.as<T>();
    const auto partial = dweight.as<Acc>();
    const std::int64_t dim = heads.head_dim, normed = (heads.q + heads.k) * dim;
    for_row_blocks(from.rows, [&](std::int64_t block, std::int64_t m, bool fresh) {
      for_heads<T>(heads, q_weight, k_weight, [&](std::int64_t first, const T* w) {
        const T *x = from.row(m) + first, *d = grad.row(m) + first;
        const Acc square = sum_columns<T>(dim, [&](Columns at) { return load(x, at) * load(x, at); });
        const Acc r = 1 / std::sqrt(square / static_cast<Acc>(dim) + static_cast<Acc>(eps));
        const Acc dot = sum_columns<T>(dim, [&](Columns at) { return load(x, at) * load(d, at) * load(w, at); });
        const Lane<T> scale(r), mean(dot * r / static_cast<Acc>(dim));
        for_columns<T>(dim, [&](Columns at) {
          const auto n = load(x, at) * scale, g = load(d, at);
          accumulate(partial.row(block) + first, at, g * n, fresh);
          store(to.row(m) + first, at, scale * (g * load(w, at) - n * mean));
        });
      });
      if (fresh) std::fill(partial.row(block) + normed, partial.row(block) + from.cols, Acc(0));
      copy_columns(grad.row(m), normed, from.cols, to.row(m));
    });
  });
}

void swiglu(const ConstMatrix& z, const Matrix& out) {
  with_type(z.dtype, [&]<class T>(T) {
    const auto in = z.as<T>();
    const auto to = out.as<T>();
    for_rows(in.rows, [&](std::int64_t m) {
      for_columns<T>(to.cols, [&](Columns at) {
        const Pairs<T> pairs(at);
        const auto [gate, up] = pairs.load(in.row(m));
        store(to.row(m), at, gate * sigmoid(gate) * up);
      });
    });
  });
}

void swiglu_backward(const ConstMatrix& z, const ConstMatrix& dout, const Matrix& dz) {
  with_type(z.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto in = z.as<T>(), grad = dout.as<T>();
    const auto to = dz.as<T>();
    for_rows(in.rows, [&](std::int64_t m) {
      for_columns<T>(grad.cols, [&](Columns at) {
        const Pairs<T> pairs(at);
        const auto [gate, up] = pairs.load(in.row(m));
        const auto s = sigmoid(gate), d = load(grad.row(m), at);
        const auto dgate = d * up * s * (Lane<T>(Acc(1)) + gate * (Lane<T>(Acc(1)) - s));
        pairs.store(to.row(m), dgate, d * gate * s);
      });
    });
  });
}

void cross_entropy(const ConstMatrix& logits, const ConstVector& target, const Vector& lse, const Vector& loss) {
  with_type(logits.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    constexpr Acc low = -std::numeric_limits<Acc>::infinity();
    const auto in = logits.as<T>();
    for_rows(in.rows, [&](std::int64_t m) {
      const T* x = in.row(m);
      Lane<T> top(low);
      for_columns<T>(in.cols, [&](Columns at) {
        const auto v = load(x, at, low);
        top = select(v > top, v, top);
      });
      const Acc max = fold_lanes(top, [](Lane<T> a, Lane<T> b) { return select(b > a, b, a); });
      const Acc sum = sum_columns<T>(in.cols, [&](Columns at) { return exp(load(x, at, low) - Lane<T>(max)); });
      const Acc value = max + std::log(sum);
      data_of<Acc>(lse)[m] = value;
      data_of<Acc>(loss)[m] = value - static_cast<Acc>(x[index_data(target)[m]]);
    });
  });
}

void cross_entropy_backward(const ConstMatrix& logits, const ConstVector& target, const ConstVector& lse,
                            const Matrix& dlogits) {
  with_type(logits.dtype, [&]<class T>(T) {
    using Acc = acc_t<T>;
    const auto in = logits.as<T>();
    const auto to = dlogits.as<T>();
    for_rows(in.rows, [&](std::int64_t m) {
      const std::int64_t hit = index_data(target)[m];
      const Lane<T> shift(data_of<Acc>(lse)[m]);
      const Acc p = std::exp(static_cast<Acc>(in.row(m)[hit]) - data_of<Acc>(lse)[m]);
      for_columns<T>(in.cols, [&](Columns at) { store(to.row(m), at, exp(load(in.row(m), at) - shift)); });
      to.row(m)[hit] = static_cast<T>(p - 1);
    });
  });
}

}  // namespace coda::nn::passes
