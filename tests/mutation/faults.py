"""Seeded faults: each is one wrong edit of the library that some test must notice.

(file, text, wrong text, check): `text` occurs in the file exactly once, or `text` is a pair (text, which occurrence,
from 0). A check is a test that includes the file (`epilogue_simd_test`: compiled with the fault), or a source of the
library and a test that calls it (`ops/gemm.cpp programs_linear_test`: the source is compiled with the fault and linked
before the library); behind either, what the test finds in its environment (`NAME=value`).
"""

MATH = "coda/epilogue/math.h"
DUAL = "coda/epilogue/dual.h"
FUNCTIONS = "coda/epilogue/functions.h"
FRAGMENT = "coda/epilogue/fragment.h"
SIMD = "coda/epilogue/simd.h"
PORTS = "coda/epilogue/ports.h"
PROGRAM = "coda/epilogue/program.h"
TILE = "coda/backend/cpu/tile.h"
VECTORS = "coda/backend/cpu/vectors.h"
LOOP = "coda/backend/cpu/gemm.cpp"
PRODUCT = "coda/backend/cpu/product.cpp"
CALL = "coda/backend/cpu/gemm.h"
PACK = "coda/backend/cpu/pack.h"
KERNELS = "coda/backend/cpu/kernels.cpp"
THREADS = "coda/backend/cpu/threads.h"
LAYER = "coda/ops/layer.cpp"
MEMORY = "coda/ops/layer_memory.cpp"
LOSS = "coda/ops/loss.cpp"
CHECK = "coda/ops/check.cpp"
FOOTPRINT = "coda/core/footprint.h"
LAYER_CHECK = "coda/ops/layer_check.cpp"
ATTENTION = "coda/nn/attention.cpp"
DATA = "coda/nn/data.cpp"
ADAMW = "coda/nn/adamw.cpp"
SAFETENSORS = "coda/nn/safetensors.cpp"
JSON = "coda/core/json.cpp"
OF_C = "coda/c/call.h"
SCHEDULE = "coda/backend/sm90/schedule.h"
SAMPLE = "coda/nn/sample.cpp"

functions, simd, program, checks = (
    "epilogue_functions_test",
    "epilogue_simd_test",
    "epilogue_program_test",
    "epilogue_checks_test",
)
tile = "cpu_tile_test"
of_c = "c/layer.cpp c_calls_test"
loop = "backend/cpu/gemm.cpp programs_linear_test"
bits = "backend/cpu/gemm.cpp programs_bits_test"
product = "backend/cpu/product.cpp programs_bits_test ONEDNN_MAX_CPU_ISA=AVX2"
column = "backend/cpu/product.cpp programs_linear_test"
extremes = "backend/cpu/gemm.cpp programs_extremes_test"
chunks = "backend/cpu/gemm.cpp cpu_chunks_test"
linear = "ops/gemm.cpp programs_linear_test"
embedding = "ops/small.cpp programs_linear_test"
backward = "ops/backward.cpp programs_backward_test"
rope = "ops/rope.cpp programs_rope_test"
loss = "ops/loss.cpp programs_loss_test"
kernels = "backend/cpu/kernels.cpp programs_backward_test"
kernels_loss = "backend/cpu/kernels.cpp programs_loss_test"
layer = "ops/layer.cpp layer_test"
memory = "ops/layer_memory.cpp layer_test"
check = "ops/check.cpp bad_input_backward_test"
loss_check = "ops/loss.cpp bad_input_backward_test"
layer_check = "ops/layer_check.cpp bad_input_layer_test"
attention = "nn/attention.cpp attention_test"
data = "nn/data.cpp text_data_test"
adamw = "nn/adamw.cpp adamw_test"
safetensors = "nn/safetensors.cpp safetensors_test"
sampling = "nn/sample.cpp sample_test"
model = "nn/model.cpp model_test"
blocks = "nn/blocks.cpp model_test"
schedule = "schedule_test"
footprint = "footprint_test"

FAULTS = [
    # ---- elementary functions
    (MATH, "low(-87.33654f)", "low(-80.f)", simd),
    (MATH, "high(89.f)", "high(80.f)", simd),
    (MATH, "_mm512_set1_ps(-1.f), _CMP_GT_OQ", "_mm512_set1_ps(-1.f), _CMP_NLE_UQ", simd),  # of AVX-512
    (MATH, "V p = V(0.008290315f);", "V p = V(0.009290315f);", simd),
    (MATH, "V p = V(0.0013264727f);", "V p = V(0.0023264727f);", simd),
    (MATH, "select(abs(x) < V(0.625f), small, copysign(big, x))", "select(abs(x) < V(0.625f), small, big)", simd),
    (MATH, "select(t < V(0.95f), small,", "select(t < V(0.65f), V(0.f),", simd),
    (MATH, "select(x < V(0.f), below, V(1.f) - below)", "select(x < V(0.f), V(1.f) - below, below)", simd),
    (MATH, "V p = V(0.045832768f);", "V p = V(0.045842768f);", simd),
    (MATH, "V p = V(0.1401223f);", "V p = V(0.1501223f);", simd),
    (MATH, "exponent - V(24.f)", "exponent - V(23.f)", simd),
    (MATH, "select(x < V(kInfinity), r, x)", "r", simd),
    (MATH, "reciprocal(e + V(2.f))", "reciprocal(e + V(1.f))", simd),
    (MATH, "select(x < V(0.f), e, V(1.f)) * reciprocal", "select(x < V(0.f), V(1.f), e) * reciprocal", simd),
    (MATH, "select(x <= S(0), S(0), x) + std::log1p(e)", "std::log1p(e)", functions),
    ("coda/epilogue/dual.h", "S(0.5) * reciprocal(s)", "S(0.5) * s", functions),
    (MATH, "return select(x <= S(0), S(0), x);", "return select(x > S(0), x, S(0));", functions),
    (MATH, "return reciprocal(S(1) + exp(-x));", "return reciprocal(S(1) + exp(x));", functions),
    # ---- derivatives
    (DUAL, "detail::chain(x, s, s * (S(1) - s))", "detail::chain(x, s, s * (S(1) + s))", functions),
    (DUAL, "detail::chain(x, t, S(1) - t * t)", "detail::chain(x, t, S(1) - t)", functions),
    (DUAL, "detail::chain(x, n.cdf, n.pdf)", "detail::chain(x, n.cdf, n.cdf)", functions),
    (DUAL, "exp(-(x.value * x.value)))", "exp(-x.value))", functions),
    (DUAL, "const auto off = x.value <= S(0);", "const auto off = x.value < S(0);", functions),
    (
        DUAL,
        "zero_where(derivative.zero, scale(derivative.otherwise, factor))",
        "materialise<S>(derivative) * factor",
        functions,
    ),
    (DUAL, "zero_where(a.zero, negate<S>(a.otherwise))", "zero_where(a.zero, a.otherwise)", functions),
    (DUAL, "add<S>(materialise<S>(a), b)", "add<S>(a.otherwise, b)", functions),
    (DUAL, "x.value + x.value", "x.value", functions),
    (
        DUAL,
        "detail::add<S>(detail::scale(a.dy, b.value), detail::scale(b.dy, a.value))",
        "detail::add<S>(detail::scale(a.dy, b.value), detail::scale(b.dy, b.value))",
        functions,
    ),
    (DUAL, ("detail::negate<S>(b.dx)", 0), "b.dx", functions),
    (DUAL, "detail::negate<S>(detail::scale(b.dx, q))", "detail::negate<S>(b.dx)", functions),
    (DUAL, "detail::chain(a, q, -q / a.value)", "detail::chain(a, q, q / a.value)", functions),
    # ---- activations
    (FUNCTIONS, "kCubic = kLinear * 0.044715", "kCubic = kLinear * 0.44715", functions),
    (FUNCTIONS, "return Act{}(gate)*up;", "return Act{}(up)*gate;", functions),
    (FUNCTIONS, "return square(relu(x));", "return relu(x);", functions),
    (MATH, "return select(c < x, c, x);", "return select(x < c, x, c);", functions),
    (MATH, "return select(x < c, c, x);", "return select(c < x, x, c);", functions),
    (DUAL, "const auto off = c < x.value;", "const auto off = c <= x.value;", functions),
    (DUAL, "const auto off = x.value < c;", "const auto off = x.value <= c;", functions),
    (FUNCTIONS, "tanh(z * C(scale / cap)) * C(cap)", "tanh(z * C(scale)) * C(cap)", functions),
    # ---- lanes and conversions
    (
        SIMD,
        "{__builtin_shufflevector(a.v, b.v, (2 * I)...), __builtin_shufflevector(a.v, b.v, (2 * I + 1)...)}",
        "{__builtin_shufflevector(a.v, b.v, (2 * I + 1)...), __builtin_shufflevector(a.v, b.v, (2 * I)...)}",
        simd,
    ),
    (SIMD, "(I / 2 + (I % 2) * N)...)", "(I / 2 + ((I + 1) % 2) * N)...)", simd),
    (SIMD, "butterfly<N / 2>(a, op)", "butterfly<N / 4>(a, op)", simd),
    (SIMD, "out.v[i] = f(x.v[i]);", "out.v[i] = f(x.v[0]);", simd),
    # ---- fragments
    (FRAGMENT, "out.v[j] = f(even, odd);", "out.v[j] = f(odd, even);", simd),
    (FRAGMENT, ("out.v[2 * j + 1] = b;", 0), "out.v[2 * j + 1] = a;", simd),
    (FRAGMENT, "x * c - y * s)", "x * c + y * s)", simd),
    (FRAGMENT, "y * c - x * s)", "y * c + x * s)", simd),
    (FRAGMENT, ("alone = abs(s) <= S(0);", 0), "alone = abs(s) < S(0);", rope),
    (FRAGMENT, ("alone = abs(s) <= S(0);", 1), "alone = abs(s) < S(0);", rope),
    (FRAGMENT, "times(d.dx, dy.v[j]), times(d.dy, dy.v[j])", "times(d.dy, dy.v[j]), times(d.dx, dy.v[j])", functions),
    # ---- ports
    (PORTS, "return select(b <= a, a, select(a <= a, b, a));", "return select(b <= a, a, b);", functions),
    (
        PORTS,
        ("static constexpr S neutral = -std::numeric_limits<S>::infinity();", 0),
        "static constexpr S neutral = S(0);",
        program,
    ),
    (PORTS, "return abs(x);", "return x;", program),
    (PORTS, "if (!data) return m;", "if (!data) return 0;", rope),
    (PORTS, 'pitch(detail::like_each_other("MomentsN", mean_, m2_).pitch)', "pitch(0)", checks),
    (PORTS, "second.pitch != first.pitch", "false", checks),
    (PORTS, "first.rows != second.rows ||", "", checks),
    (PORTS, "|| first.cols != second.cols", "", checks),
    (PORTS, "wide = sizeof(*elements.data) == sizeof(std::int64_t)", "wide = true", checks),
    (PORTS, "size(v.data ? v.size : kUnknownSize)", "size(v.size)", checks),
    (PORTS, "size(static_cast<std::int64_t>(std::size(c)))", "size(kUnknownSize)", checks),
    (PORTS, "size(static_cast<std::int64_t>(s.size()))", "size(kUnknownSize)", checks),
    (PORTS, "data(e.data), size(e.size)", "data(e.data)", checks),
    (PROGRAM, ("e.m, e.tiles_n, p.pitch}", 0), "e.m, 1, p.pitch}", checks),
    (PROGRAM, "e.tiles_m, e.n, p.pitch}", "1, e.n, p.pitch}", checks),
    (PROGRAM, "port.width == Width::Half && port.data &&", "port.width == Width::Half &&", checks),
    (PROGRAM, "&& extents.n % 2 != 0", "&& false", checks),
    (PROGRAM, "view.rows != x.rows ||", "", checks),
    (PROGRAM, "|| view.cols != x.cols", "", checks),
    (PROGRAM, "x.rows > 1 && x.pitch < x.cols", "x.rows > 1 && x.pitch < x.cols / 2", checks),
    (PROGRAM, "if (!x.data) return;", "", checks),
    (PROGRAM, "Footprint(a), detail::Access::reads", "Footprint(), detail::Access::reads", checks),
    (PROGRAM, "tile && out.footprint == other.footprint", "tile", checks),
    (PROGRAM, "if (out.access != Access::writes) continue;", "", checks),
    (PROGRAM, "std::is_const_v<T> ? Access::reads : Access::writes", "Access::reads", checks),
    (PROGRAM, "e.columns(W), p.pitch}, Access::reads_tile", "e.columns(W), p.pitch}, Access::reads", checks),
    (PROGRAM, "rows == std::numeric_limits<std::int64_t>::max()", "rows == 0", checks),
    (PROGRAM, "size != kUnknownSize && size != expected", "size != kUnknownSize && size < expected", checks),
    (PROGRAM, 'f("RowVector", p.data, e.columns(W))', 'f("RowVector", p.data, e.n)', checks),
    (PROGRAM, "p.index, e.m);\n}\ntemplate <class F>", "p.index, e.n);\n}\ntemplate <class F>", checks),
    (PROGRAM, "port.head_dim % 2 != 0", "false", checks),
    # ---- the CPU's tile: masks, widths, rows, reductions
    (
        TILE,
        "valid_ = static_cast<int>(std::min<std::int64_t>(kColumns, geometry_.col + geometry_.cols - col));",
        "valid_ = kColumns;",
        program,
    ),
    (TILE, "p.reg[0] = Op::template neutral<Acc>;", "", program),
    (TILE, "lse_max_ = scalar(-std::numeric_limits<Acc>::infinity());", "lse_max_ = scalar(Acc(0));", program),
    (
        TILE,
        "if (p.data) p.data[row_ * p.pitch + geometry_.tile_n] = p.reg[0];",
        "if (p.data) p.data[row_ * p.pitch] = p.reg[0];",
        program,
    ),
    (TILE, "read<W>(p.data + row_ * p.pitch + scaled<W>(col_))", "read<W>(p.data + row_ * p.pitch + col_)", program),
    (TILE, "T* to = p.data + row_ * p.pitch + scaled<W>(col_);", "T* to = p.data + row_ * p.pitch + col_;", program),
    (
        FRAGMENT,
        ("if constexpr (W == Width::Double) return {a, b};", 0),
        "if constexpr (W == Width::Double) return {b, a};",
        simd,
    ),
    (TILE, "pack<true>(to, f);", "pack<true>(to, f), write(to, fragment<W>{});", tile),
    (TILE, "valid_ == kColumns && is_line(to)", "is_line(to)", tile),
    (VECTORS, "= deinterleave(v[i], v[i + 1]);", "= interleave(v[i], v[i + 1]);", backward),
    (VECTORS, "= interleave(v[i], v[i + 1]);", "= deinterleave(v[i], v[i + 1]);", backward),
    (VECTORS, "_mm512_set1_epi32(-0x10000)", "_mm512_set1_epi32(-1)", backward),  # of AVX-512, as that below
    (
        VECTORS,
        "rounded = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(v[i + 1].v, v[i].v))",
        "rounded = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(v[i].v, v[i + 1].v))",
        backward,
    ),
    (TILE, "if (p.data && col_ == 0)", "if (p.data)", program),
    (TILE, "if (p.data && row_ == 0)", "if (p.data)", program),
    (TILE, "if (!p.data || row_ != geometry_.row) return;", "if (!p.data || row_ != 0) return;", program),
    (TILE, "p.data + geometry_.tile_m * p.pitch + col_", "p.data + col_", program),
    (TILE, "fold<Op>(masked(x, Op::template neutral<Acc>))", "fold<Op>(x)", program),
    (TILE, "const Acc mean = fold<Sum>(masked(f, Acc(0))) / n;", "const Acc mean = fold<Sum>(f) / n;", program),
    (TILE, "m2 + delta * (p.reg[0] * n / total) * delta;", "m2;", program),
    (TILE, "delta * (p.reg[0] * n / total) * delta;", "delta * delta * p.reg[0] * n / total;", program),
    (TILE, "scalar s = lse_sum_ * exp(lse_max_ - shift);", "scalar s = lse_sum_;", tile),
    (TILE, "const scalar s = lse_sum_ * exp(lse_max_ - lse_shift(scalar(m)));", "const scalar s = lse_sum_;", tile),
    (PORTS, "infinity()) <= abs(max)", "infinity()) < abs(max)", "ops/loss.cpp programs_extremes_test"),
    (PROGRAM, "columns > 0 && columns % port.head_dim != 0", "columns < 0", checks),
    (PROGRAM, "p.rows, e.n, p.pitch}", "1, e.n, p.pitch}", checks),
    (PROGRAM, "!p.mean == !p.m2 ?", "p.mean || p.m2 || !p.mean ?", checks),
    (
        "coda/epilogue/adamw.h",
        "rest2(static_cast<Real>(1 - beta2_))",
        "rest2(1 - static_cast<Real>(beta2_))",
        "ops/optimizer.cpp optimizer_test",
    ),
    (TILE, "column >= first && column - first < valid_ ?", "column >= first ?", program),
    (TILE, "std::copy_n(tmp, scaled<W>(valid_), p);", "std::copy_n(tmp, fragment<W>::count * kL, p);", program),
    (TILE, "std::fill(tmp + scaled<W>(valid_),", "std::fill(tmp + scaled<W>(valid_ - 1),", program),
    (TILE, "head_of(column, p.head_dim)] += x;", "head_of(column, p.head_dim)] = x;", rope),
    (TILE, "c += p.head_dim) *head++ = 0;", "c += p.head_dim) break;", rope),
    (TILE, "offset = offset + kL == head_dim ? 0 : offset + kL;", "offset += kL;", tile),
    (TILE, "if (i * kL < stop) f(i,", "f(i,", tile),
    (TILE, "(first < p.q_columns ? p.q : p.k)", "(first <= p.q_columns ? p.q : p.k)", rope),
    (TILE, "static_cast<Acc>(p.head_dim) + p.eps;", "static_cast<Acc>(p.head_dim);", rope),
    (TILE, "std::clamp<std::int64_t>(columns - col_, 0, valid_)", "valid_", rope),
    (TILE, "f.v[i] = load_as<tile.kL>(row + c + i * tile.kL);", "f.v[i] = load_as<tile.kL>(row + c);", program),
    (TILE, "r * (strip < g.cols ? width : ld)", "(r & 127) * (strip < g.cols ? width : ld)", program),
    # ---- the tile loop and packing
    (LOOP, "n0 + i / down / slices,", "n0 + i / down,", loop),
    (LOOP, "col = i / down % slices * cols;", "col = 0;", loop),
    (LOOP, "i % down * rows, tm", "0 * rows, tm", loop),
    (LOOP, "share * count_ / threads;", "share * (count_ / threads);", bits),
    (LOOP, "if (first_ != first) {", "if (first_ < 0) {", loop),
    (LOOP, 'std::string(call.op) + ": workspace', 'std::string("gemm") + ": workspace', extremes),
    (ADAMW, "    check_numbers(numbers(options, 0, 1, 1), state);\n", "", adamw),
    (ADAMW, "check(call_of(i));", ";", adamw),
    (SAFETENSORS, "!text.empty() && text[0] == '{';", "true;", safetensors),
    (SAFETENSORS, "names[level + 1].clear();", ";", safetensors),
    (JSON, "deep || text.find('\\0') != text.npos", "deep", "core/json.cpp safetensors_test"),
    (LOOP, "        strip.forget();\n", "", loop),
    (LOOP, "in.at(first)) + from * in.k_stride", "in.at(0)) + from * in.k_stride", loop),
    (
        PROGRAM,
        "kFoldsRows<ReduceM<Op, Acc>> = true",
        "kFoldsRows<ReduceM<Op, Acc>> = false",
        "ops/backward.cpp programs_bits_test",
    ),
    (LOOP, "rows = c.folds.rows || piece.whole ?", "rows = piece.whole ?", bits),
    (PRODUCT, "const Operand x = settled(a, m, k), y = settled(b, n, k);", "const Operand x = a, y = b;", product),
    (PRODUCT, "a.data + l * a.k_stride * size", "a.data + l * size", column),
    (PRODUCT, "acc[(first + i) * ld] = column[i]", "acc[first + i] = column[i]", column),
    (LOOP, "if (c.folds.columns || !worth) return c.tile_n;", "if (!worth) return c.tile_n;", bits),
    (LOOP, "columns.at(cols.first));", "columns.at(0));", loop),
    (LOOP, "tn * c.tile_n + cols.first,", "tn * c.tile_n,", loop),
    (LOOP, "+ first * steps) *", "+ 0 * steps) *", loop),
    (LOOP, "order == Order::free_inner ? 1 : ceil_div", "ceil_div", loop),
    (
        LOOP,
        "c.epilogue(c.program, g, r, count, acc, ld, piece.cols);",
        "c.epilogue(c.program, g, 0, count, acc, ld, piece.cols);",
        loop,
    ),
    (LOOP, "std::byte*>(some.at(r));", "std::byte*>(some.data);", loop),
    (
        LOOP,
        "tn * c.tile_n + cols.first,",
        "tn * kTileN + cols.first,",
        "backend/cpu/gemm.cpp programs_rope_test",
    ),
    (LOOP, "c.epilogue(c.program, g, r - g.row,", "c.epilogue(c.program, g, 0,", loop),
    (LOOP, "i % across * width, last_tile", "0 * width, last_tile", loop),
    (LOOP, "a.get(tm, from).at(r + q)", "a.get(tm, from).at(q)", loop),
    (LOOP, "q * width, from > 0);", "q * width, false);", chunks),
    (LOOP, "acc + s * count + q * width", "acc + s * piece.rows + q * width", chunks),
    (LOOP, "acc + s * count + q * width", "acc + s * count + q * piece.cols", chunks),
    (LOOP, "2 * (blocked_size<bf16>(count, from) + blocked_size<bf16>(past, steps))", "0", chunks),
    (TILE, "acc + s * count", "acc + s", "cpu_chunks_test"),
    (LOOP, "(from * extent(i) + first * steps)", "(from * extent(i) + first * size)", chunks),
    (LOOP, "k - from < size + kLeastBlockedK ? k - from : size", "size", chunks),
    (LOOP, "some.data += from * operand.k_stride", "some.data += from", chunks),
    (LOOP, "in.at(first)) + from * in.k_stride", "in.at(first)) + from", chunks),
    (LOOP, "else if (!c.folds.columns) piece.cols", "else piece.cols", chunks),
    (LOOP, "return std::min(tile, size - i * tile);", "return std::min(tile, size);", loop),
    (LOOP, "const bool turn = free_runs != inner_free;", "const bool turn = false;", loop),
    (LOOP, "(i % per_group) * panel_bytes()", "0 * panel_bytes()", loop),
    (
        LOOP,
        "for (std::int64_t n0 = 0; n0 < count_n; n0 += pb.per_group) {",
        "for (std::int64_t n0 = 0; n0 < std::min(count_n, pb.per_group); n0 += pb.per_group) {",
        extremes,
    ),
    (LOOP, "turned{g.col, g.row + first,", "turned{g.col, g.row,", loop),
    (LOOP, "c.epilogue(c.program, turned, 0, g.cols,", "c.epilogue(c.program, turned, 0, g.cols - 1,", loop),
    (LOOP, "if (!wide || folds ||", "if (!wide ||", loop),
    (LOOP, "        omp_set_num_threads(1);\n", "", bits),
    (THREADS, "_mm_setcsr(kAtStart);", "", bits),
    (THREADS, " || detail::has_lost_threads", "", bits),
    (PACK, ("out[c * rows + r] = in[r * pitch + c];", 0), "out[c * rows + r] = in[r * cols + c];", loop),
    (PACK, "lines[0] + i, kLine);", "lines[0], kLine);", "cpu_pack_test"),
    (PACK, "(l * kR + i) * out_pitch,", "(l * kR + i / 2) * out_pitch,", "cpu_pack_test"),
    (
        PACK,
        "out[c * rows + r + i] = in[(r + i) * pitch + c];",
        "out[c * rows + r + i] = in[r * pitch + c];",
        "cpu_pack_test",
    ),
    (PACK, "for (; c < cols; ++c) out[c] = static_cast<float>(in[c]);", "", loop),
    (PACK, "std::fill_n(block(i, j), kBlockN * kK, To(0.F));", "", loop),
    (PACK, "i = j < whole_k ? whole_n : 0;", "i = whole_n;", loop),
    # ---- programs
    ("coda/programs/gemm.h", "if (beta != 0) z = z + tile.load(c) * beta;", "z = z + tile.load(c) * beta;", linear),
    (
        "coda/ops/gemm.cpp",
        "static_cast<acc_t<T>>(args.alpha)",
        "static_cast<acc_t<T>>(T(static_cast<acc_t<T>>(args.alpha)))",
        linear,
    ),
    (
        "coda/programs/norm.h",
        "(acc - tile.load(mean) * tile.load(u)) * tile.load(rstd) + tile.load(c)",
        "(acc - tile.load(mean)) * tile.load(rstd) + tile.load(c)",
        linear,
    ),
    ("coda/programs/norm.h", "(z - map(WhereNonzero{}, tile.load(c), dz)) * dz", "z * dz", backward),
    ("coda/programs/norm.h", "map(MinusProduct{}, y * dy, dz, tile.load(c))", "y * dy", rope),
    (
        "coda/programs/norm.h",
        "map(WhereNonzero{}, tile.load(c), dz)",
        "tile.load(c)",
        "ops/loss.cpp programs_extremes_test",
    ),
    ("coda/programs/loss.h", "tile.as_stored(preact, z)", "z", loss),
    (LOSS, "p.m, tile, tiles), .out = out", "p.m, tiles, tiles), .out = out", loss + " MALLOC_PERTURB_=128"),
    ("coda/ops/loss.cpp", 'check_block(check, "chunk", p.m, chunk);', "", "ops/loss.cpp programs_extremes_test"),
    ("coda/programs/residual.h", ("tile.store(h, z * tile.load(weight));", 0), "tile.store(h, z);", linear),
    ("coda/programs/residual.h", ("stat(tile, z);", 1), "stat(tile, z * tile.load(weight));", embedding),
    (
        "coda/programs/residual.h",
        "tile.reduce(dweight, acc * normed);\n  }",
        "tile.reduce(dweight, acc * w);\n  }",
        backward,
    ),
    ("coda/programs/residual.h", "tile.reduce(dbias, acc);", "tile.reduce(dbias, acc * r);", backward),
    ("coda/programs/rope.h", "r * r * tile.load(gz)", "r * tile.load(gz)", rope),
    ("coda/programs/norm.h", "select(abs(k) <= S(0), g, g - z * k)", "g - z * k", rope),
    (
        "coda/programs/rope.h",
        "dot.of_output(tile, tile.load(y), g, d)",
        "dot(tile, pairwise(tile.load(y), tile.load(rope), RotateBack{}), d)",
        rope,
    ),
    ("coda/programs/rope.h", "pairwise(z, turn, RotateBack{})", "pairwise(z, turn, Rotate{})", rope),
    ("coda/ops/rope.cpp", 'check.input("angle", args.angle);', 'check.operand("angle", args.angle);', rope),
    ("coda/programs/loss.h", "- smooth - hot * hit;", "- smooth - hot;", loss),
    (
        "coda/programs/loss.h",
        "return map(WhereNonzero{}, backward(logit, z, weight).dz * dl, weight);",
        "return backward(logit, z, weight).dz * dl;",
        "ops/loss.cpp programs_extremes_test",
    ),
    # ---- what a call may overwrite
    (
        "coda/ops/rope.cpp",
        'check.operand("y", args.y);',
        'check.input("y", args.y);',
        "ops/rope.cpp bad_input_backward_test",
    ),
    # ---- reductions between programs
    (
        KERNELS,
        "std::sqrt(sum / static_cast<double>(n) + eps)",
        "std::sqrt((sum + eps) / static_cast<double>(n))",
        kernels,
    ),
    (KERNELS, "std::min(tile_n, n - t * tile_n)", "tile_n", kernels),
    (KERNELS, "const Acc* in = row(i) + first;", "const Acc* in = row(i);", kernels),
    (KERNELS, "sum[n] = beta == 0 ? 0 : beta * static_cast<double>(out[first + n]);", "sum[n] = 0;", kernels),
    (
        KERNELS,
        "const double shift = std::isinf(top) ? 0 : top;",
        "const double shift = top;",
        "backend/cpu/kernels.cpp programs_extremes_test",
    ),
    (
        KERNELS,
        "return To(rounded_to_odd(x));",
        "return To(static_cast<float>(x));",
        "backend/cpu/kernels.cpp optimizer_test",
    ),
    (KERNELS, "l += o.z_loss * value * value", "l += o.z_loss * value", kernels_loss),
    # ---- a layer in one call
    (LAYER, ".dx_in = args.dx_next,", "", layer),
    (LAYER, (".eps = args.eps, ", 1), "", layer),
    (LAYER, (".eps = args.head_eps,", 0), "", layer),
    (LAYER, "const Matrix x_mid = args.x_mid ? args.x_mid : x_out;", "const Matrix x_mid = x_out;", layer),
    (
        LAYER,
        "weight_gradient(args, gradients.gate_up, args.beta,",
        "weight_gradient(args, gradients.gate_up, 1,",
        layer,
    ),
    (LAYER, "const double beta = first == 0 ? args.beta : 1;", "const double beta = args.beta;", layer),
    (LAYER, "rows_of(args.x_last, first, rows)", "rows_of(args.x_last, 0, rows)", layer),
    (LAYER, ("reduce_row_term(args.on, zdz, hidden,", 2), "reduce_row_term(args.on, zdz, 2 * hidden,", layer),
    (MEMORY, "max = arena.matrix(stats, rows, tiles);", "max = arena.matrix(stats, rows, 1);", memory),
    (MEMORY, ("y = arena.matrix(s.dtype, s.tokens, s.ffn);", 0), "y = h;", memory),
    (LAYER, "head_tiles_n(width, args.heads.head_dim, backend)", "tiles_n(width, backend)", layer),
    (LAYER, "  moved(args, a, b);\n", "", layer),
    (LAYER, "std::max<std::int64_t>(s.vocabulary, 1)", "s.vocabulary", layer),
    (LAYER, "std::max<std::int64_t>(vocabulary, 1)", "vocabulary", layer),
    (LAYER_CHECK, "shape_.logit_rows = rows;", "", "ops/layer_check.cpp layer_test"),
    # ---- what a call refuses, and what it must not
    (LOSS, "(ratio == 0 && cap != 0 && scale != 0)", "(ratio == 0 && cap != 0)", loss_check),
    (LOSS, "scalar_in(stats, 2 * o.z_loss)", "scalar_in(stats, o.z_loss)", loss_check),
    (LOSS, "args.loss && args.options.label_smoothing != 0", "args.options.label_smoothing != 0", loss_check),
    (LOSS, 'check.indices("target", args.target, m);', "", loss_check),
    (LOSS, 'check.operand("target", args.target);', "", loss_check),
    (LOSS, 'check.operand("sum", args.sum);', "", loss_check),
    (LOSS, 'check.operand("logit_sum", args.logit_sum);', ";", loss_check),
    (LOSS, 'check.optional_vector("row_udz", args.row_udz, p.m, p.stats);', "", loss_check),
    (LOSS, 'check.output("row_udz", args.row_udz);', "", loss_check),
    (FOOTPRINT, "&) const = default;", "& o) const { return begin == o.begin && pitch == o.pitch; }", footprint),
    (FOOTPRINT, "return shift < width ||", "return shift <= width ||", footprint),
    (FOOTPRINT, "shift + other.width > common", "shift + other.width > common + 4", footprint),
    (FOOTPRINT, "(other.rows > 1 && other.pitch != common) ||", "", footprint),
    (FOOTPRINT, "begin && m.rows > 1 ?", "begin ?", footprint),
    (FOOTPRINT, "m.rows > 0 && m.cols > 0 ?", "m.rows > 0 ?", footprint),
    (CHECK, "eps >= 0 && std", "eps > 0 && std", "ops/check.cpp bad_input_test"),
    (LAYER_CHECK, "if (m.cols < 1)", "if (m.cols < 0)", layer_check),
    (LAYER_CHECK, "(m.rows <= 1 || outputs.pitch == m.pitch)", "true", layer_check),
    (LAYER_CHECK, "gradient(k_norm, g.k_norm, w.k_norm);", "", layer_check),
    (LAYER_CHECK, "check_.operand(name, v);", "", layer_check),
    (LAYER_CHECK, ("check_.operand(name, w);", 1), "", layer_check),
    (LAYER_CHECK, ("check_.output(name, g);", 1), "", layer_check),
    (
        LAYER_CHECK,
        'check_.output("workspace", Vector(workspace.data(), DType::bf16, std::ssize(workspace) / 2));',
        "",
        layer_check,
    ),
    ("coda/ops/gemm.cpp", "args.beta == 0 || args.c", "args.beta != 1 || args.c", "ops/gemm.cpp bad_input_test"),
    # ---- the optimiser
    ("coda/ops/optimizer.cpp", "args.beta == 0 ? 0 : *out", "args.beta * *out", "ops/optimizer.cpp optimizer_test"),
    (KERNELS, "|| bits % 2 == 1", "", "backend/cpu/kernels.cpp optimizer_test"),
    ("coda/nn/adamw.cpp", "std::abs(gradient_scale)", "gradient_scale", "nn/adamw.cpp adamw_test"),
    # ---- models: attention, texts, files, sampling
    (ATTENTION, "const V x = load(scores, at, low);", "const V x = load(scores, at);", attention),
    (ATTENTION, ("head / s.group()", 1), "head % s.kv_heads", attention),
    (ATTENTION, ("row = b * s.queries + first;", 1), "row = b * s.keys + first;", attention),
    (ATTENTION, '"v", a.v, a.k.rows,', '"v", a.v, a.v.rows,', attention),
    (ATTENTION, "if (error) std::rethrow_exception(error);", "", attention),
    (DATA, "(tokens - 1) / seq", "tokens / seq", data),
    (DATA, "round << 32 | right", "right", data),
    (DATA, "max() / options_.batch - 1", "max() / options_.batch", data),
    (SAFETENSORS, "length > kMaxHeader || ", "", safetensors),
    (
        "coda/nn/names.cpp",
        "in.shape() != item.shape",
        "in.size() != element_count(item.shape, DType::fp64)",
        "nn/names.cpp checkpoint_test",
    ),
    (SAFETENSORS, "entry->begin != end", "entry->begin > end", safetensors),
    (SAFETENSORS, "(text.size() + 7) / 8 * 8", "(text.size() + 3) / 4 * 4", safetensors),
    (SAMPLE, "std::min(options.top_k, size)", "options.top_k", sampling),
    (SAMPLE, " - logit(order[0])", "", sampling),
    ("coda/nn/config.cpp", "qwen3 ? 128 : ", "", "nn/config.cpp model_config_test"),
    (
        "coda/nn/config.cpp",
        '"dtype") ? "dtype" : "torch_dtype"',
        '"torch_dtype") ? "torch_dtype" : "dtype"',
        "nn/config.cpp model_config_test",
    ),
    ("coda/nn/config.cpp", "= config.rope_theta;", "= int(config.rope_theta);", "nn/config.cpp model_config_test"),
    ("coda/nn/rotary.cpp", "std::floor(first)", "std::round(first)", "nn/rotary.cpp model_config_test"),
    ("coda/nn/rotary.cpp", "(1 - fast) / s.factor", "(1 - fast)", "nn/rotary.cpp model_config_test"),
    ("coda/nn/rotary.cpp", "yarn ? config.rope_scaling.attention_factor : ", "", "nn/rotary.cpp model_config_test"),
    ("coda/nn/model.cpp", "fill_rotary_table(all_.rotary, config_)", "ops::rotary_table(all_.rotary, 1e4)", model),
    (
        "coda/nn/model.cpp",
        "fill_rotary_table(activations_.rotary, config_)",
        "ops::rotary_table(activations_.rotary, 1e4)",
        model,
    ),
    ("coda/nn/model.cpp", "batch.targets, vocab,", "batch.targets, vocab + 1,", model),
    ("coda/nn/blocks.cpp", (".eps = config_.norm_eps,", 0), "", blocks),
    ("coda/nn/blocks.cpp", (".eps = config_.norm_eps,", 1), "", blocks),
    (
        "coda/nn/generate.cpp",
        "static_cast<std::int64_t>(text.size()));",
        "i);",
        "nn/generate.cpp model_test",
    ),
    ("coda/nn/generate.cpp", "last(static_cast", "first(static_cast", "nn/generate.cpp model_test"),
    ("coda/nn/trainer.cpp", '  visit("warmup", o.warmup);\n', "", "nn/trainer.cpp trainer_test"),
    (
        "coda/nn/trainer.cpp",
        '{"loss", s.loss}',
        '{"loss", s.loss * options_.accumulation}',
        "nn/trainer.cpp trainer_test",
    ),
    (
        "coda/ops/rope.cpp",
        "position[i] < 0 || position[i] >= h.table.rows",
        "position[i] >= h.table.rows",
        "ops/rope.cpp bad_input_test",
    ),
    # ---- which thread blocks of a Hopper GPU compute what
    (SCHEDULE, "helpers <= clusters - left", "helpers <= clusters", schedule),
    (SCHEDULE, "clusters > kMostClusters", "clusters > 2 * kMostClusters", schedule),
    (SCHEDULE, "std::min(of_helper_, left_ - cluster * of_helper_)", "of_helper_", schedule),
    (SCHEDULE, "(is_left ? first_owner_ : 0)", "0", schedule),
    (SCHEDULE, "is_left ? left_steps_ : steps_,", "steps_,", schedule),
    (SCHEDULE, "(number < ahead_ ? 0 : done_helping(cluster))", "done_helping(cluster)", schedule),
    (SCHEDULE, "number < ahead_ ? number : number - pieces", "number - pieces", schedule),
    (SCHEDULE, "(count - 1) * piece_steps_ + piece(cluster, 0).steps", "count * piece_steps_", schedule),
    (SCHEDULE, "cluster : tile - rounds_ * clusters_;", "cluster : cluster;", schedule),
    (SCHEDULE, "(65536 + of_tile_ - 1) / of_tile_", "65536 / of_tile_", schedule),
    (SCHEDULE, "ahead_ * steps_ + number", "number", schedule),
    (SCHEDULE, "if (cost < least)", "", schedule),
    # ---- the interface for C
    (OF_C, "if (c->traffic) *c->traffic += moved.bytes();", "if (c->traffic) *c->traffic = moved.bytes();", of_c),
    (OF_C, "c->workspace.data ? c->workspace.bytes : 0", "c->workspace.bytes + 64", of_c),
    (OF_C, "CODA_INVALID_ARGUMENT + static_cast", "static_cast", of_c),
    (OF_C, "return fail(CODA_INTERNAL_ERROR, operation, error.what());", "return CODA_OK;", "c_calls_test"),
    ("coda/c/core.cpp", "thread_local char message", "char message", "c/core.cpp c_calls_test"),
]
