"""Seeded faults of the Hopper backend: each is one wrong edit that some test on the GPU must notice.

(file, text, wrong text, unit[, check]): the file is in coda/backend/sm90, and `text` occurs in it exactly once, or `text`
is a pair (text, which occurrence, from 0). The fault is compiled into its unit; a check is a test, the tests of it that
must fail, and settings; a unit has one for the faults that name none.
"""


def fuzz(program: str, variant: int = 0, cases: int = 300) -> tuple:
    """Random cases of one variant of a program, some tens of them in its fused kernel."""
    settings = (f"CODA_TEST_PROGRAMS={program}", f"CODA_FUZZ_VARIANT={variant}", f"CODA_FUZZ_CASES={cases}")
    return ("fuzz_test", "Fuzz.*", *settings)


def tests(name: str, pattern: str, program: str = "") -> tuple:
    return (name, pattern, f"CODA_TEST_PROGRAMS={program}") if program else (name, pattern)


# unit: source, what is instantiated of it (None: all of it), check. Those without a fused kernel compile sooner.
UNITS = {
    "gemm": ("gemm.cu", "Product<bf16, Gemm<bf16>>", fuzz("gemm")),
    "norm": ("norm.cu", "Product<bf16, GemmNorm<bf16>>", fuzz("gemm_norm")),
    "glu": ("glu.cu", "Product<bf16, GemmNormGlu<bf16>>", fuzz("gemm_norm_glu")),
    "residual": ("residual.cu", "Product<bf16, GemmResidual<bf16>>", fuzz("gemm_residual")),
    "rope": ("rope.cu", "Product<bf16, GemmNormRope<bf16>>", fuzz("gemm_norm_rope")),
    "qknorm": ("rope.cu", "Product<bf16, GemmNormQkNormRope<bf16>>", fuzz("gemm_norm_qknorm_rope")),
    "lse": ("loss.cu", "Product<bf16, GemmNormLse<bf16>>", fuzz("gemm_lse")),
    "head": ("loss.cu", "Product<bf16, GemmCrossEntropyBackward<bf16>>", fuzz("linear_cross_entropy_backward")),
    "rms_backward": ("rms_backward.cu", "Product<bf16, GemmRmsBackward<bf16>>", fuzz("gemm_rms_backward")),
    "glu_backward": ("glu_backward.cu", "Product<bf16, GemmGluBackward<bf16>>", fuzz("gemm_glu_backward")),
    "gemm_apply": ("rare.cu", "Product<bf16, Gemm<bf16, Silu>>", fuzz("gemm", 1)),
    "glu_apply": ("rare.cu", "Product<bf16, GemmNormGlu<bf16, LayerNormScale<bf16>>>", fuzz("gemm_norm_glu", 4)),
    "lse_apply": ("rare.cu", "Product<bf16, GemmNormLse<bf16, LayerNormScale<bf16>>>", fuzz("gemm_lse", 1)),
    "erf_apply": ("rare.cu", "Product<bf16, GemmNorm<bf16, RmsScale<bf16>, GeluErf>>", fuzz("gemm_norm", 2)),
    "fold_apply": ("rare.cu", "Product<bf16, GemmLayerNormBackward<bf16>>", fuzz("gemm_layernorm_backward")),
    "rope_back": ("elementwise.cu", "Elementwise<RopeBackward<bf16>>", fuzz("rope_backward")),
    "moments": ("elementwise.cu", "Elementwise<Embedding<bf16, Moments<bf16>>>", fuzz("embedding", 1)),
    "embedding": ("elementwise.cu", "Elementwise<Embedding<bf16>>", fuzz("embedding")),
    "cross_entropy": ("elementwise.cu", "Elementwise<CrossEntropyBackward<bf16>>", fuzz("cross_entropy_backward")),
    "qknorm_back": ("elementwise.cu", "Elementwise<QkNormRopeBackward<bf16>>", fuzz("qknorm_rope_backward")),
    "blas": ("blas.cpp", None, tests("matmul_test", "Matmul.any_shape*")),
    "workspace": ("workspace.cpp", None, tests("matmul_test", "Matmul.workspace*")),
    "reduce": ("kernels_reduce.cu", None, tests("kernels_test", "Kernels.*sum*:Kernels.norm*:Kernels.lse*")),
    "small": (
        "kernels_elementwise.cu",
        None,
        tests("kernels_test", "Kernels.fill*:Kernels.masked*:Kernels.*norm*:Kernels.adamw*"),
    ),
    "own": ("../../../tests/gpu/own_programs.cu", None, tests("own_programs_test", "*")),
    "table": ("kernels_embedding.cu", None, tests("kernels_test", "Kernels.embedding*")),
    "launch": ("launch.cpp", None, tests("programs_test", "Programs.AreExactInManyTiles", "gemm")),
}

wide_rows = tests("programs_test", "Programs.WithoutAProduct*")
wide_rope_rows = tests("programs_test", "Programs.WithoutAProduct*", "rope_backward")
many_gemm_tiles = tests("programs_test", "Programs.AreExactInManyTiles", "gemm")
many_tiles = tests("programs_test", "Programs.AreExactInManyTiles", "gemm_residual")
many_glu_tiles = tests("programs_test", "Programs.AreExactInManyTiles", "gemm_glu_backward")
many_rms_tiles = tests("programs_test", "Programs.AreExactInManyTiles", "gemm_rms_backward")
stored_logits = tests("extremes_test", "Extremes.StoredLogits*", "gemm_lse")
infinities = tests("extremes_test", "Extremes.InfinitiesAndNaN*")
minus_infinity = tests("extremes_test", "Extremes.RowsOfMinusInfinity*")
tiny_inputs = tests("extremes_test", "Extremes.LargeAndTiny*", "gemm_norm_qknorm_rope")
tokens = tests("extremes_test", "BadIndices.OfTokensAndPositions*")
targets = tests("extremes_test", "BadIndices.OfTargets*")
single_row = tests("extremes_test", "Extremes.ThePitchOfASingleRow*", "gemm_norm")
empty = tests("extremes_test", "Extremes.EmptySides*", "gemm_residual")
without_growth = ("threads_test", "Threads.Neither*", "CODA_TEST_CALLS=200")
kept_memory = tests("split_test", "KernelMemory.*")
capture = tests("capture_elsewhere_test", "CaptureElsewhere.*")
algorithms = tests("matmul_test", "Matmul.*algorithm*")
large_bias = tests("large_test", "LargeOutputs.OfGemm")
large_rows = tests("large_test", "LargeOutputs.WhoseRows*")
large_rows_of_runs = tests("large_test", "LargeOutputs.OfCrossEntropyBackward")
large_rows_anywhere = tests("large_test", "LargeOutputs.OfCrossEntropyBackwardInRows*")
large_fill = tests("large_test", "LargeOutputs.OfFill*")
too_wide = tests("large_test", "LargeOutputs.TwiceAsWide*")
heads_of_threads = tests("threads_test", "Threads.WithHeads*")
large_residual = tests("large_test", "LargeOutputs.OfGemmResidual")
in_order = tests("order_test", "Order.*")
split_k = tests("programs_test", "Programs.HoldTheBoundWhereKIsSplit", "gemm")
split_gemm = tests("programs_test", "Programs.AreExactWhereTheLastRoundIsSplit", "gemm")
split_residual = tests("programs_test", "Programs.AreExactWhereTheLastRoundIsSplit", "gemm_residual")
split_glu = tests("programs_test", "Programs.AreExactWhereTheLastRoundIsSplit", "gemm_glu_backward")
split_replays = tests("split_test", "SplitRound.BeginsAnewInEachReplay")
split_k_residual = tests("programs_test", "Programs.HoldTheBoundWhereKIsSplit", "gemm_residual")
few_rows_alone = tests("bits_test", "Bits.OfARowAreThoseOfAFull*", "gemm")
left_behind = tests("bad_calls_test", "BadCalls.OfTheApplication*", "embedding_backward")

FRAGMENT = "fragment.cuh"
TILE = "tile.cuh"
LIFECYCLE = "lifecycle.cuh"
WORKER = "worker.cuh"
EPILOGUE = "epilogue.cuh"
KERNEL = "teams.cuh"
MAINLOOP = "mainloop.cuh"
SCHEDULE = "schedule.h"
SPLIT_K = "splitk.cuh"
ENQUEUE = "enqueue.cuh"
LAUNCH = "launch.cpp"
GEMM = "gemm.cuh"
APPLY = "apply.cuh"
RING = "ring.cuh"
PRODUCT = "product.cuh"
REDUCE = "kernels_reduce.cu"
SMALL = "kernels_elementwise.cu"
TABLE = "kernels_embedding.cu"
BLAS = "blas.cpp"
PORTS = "../../epilogue/ports.h"
WORKSPACE = "workspace.cpp"
CHUNKS = "kernels.cuh"

FAULTS = [
    # ---- lanes, words and what travels between registers and memory
    (FRAGMENT, "* scaled<W>(G::kStride) +", "* scaled<W>(G::kStride / 2) +", "rope"),
    (FRAGMENT, "__floats2bfloat162_rn(low, high)", "__floats2bfloat162_rn(high, low)", "embedding"),
    (
        FRAGMENT,
        "__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)",
        "__uint_as_float(w << 16), 0.f",
        "embedding",
    ),
    (FRAGMENT, "pack(T(), x[2 * i], x[2 * i + 1])", "pack(T(), x[2 * i], x[2 * i])", "embedding"),
    (FRAGMENT, "x[i] = i % 2 ? p.second : p.first;", "x[i] = p.first;", "embedding"),
    (FRAGMENT, "st.global.v2.b32 [%0], {%1, %2}", "st.global.v2.b32 [%0], {%2, %1}", "residual"),
    (FRAGMENT, "ld.global.nc.v2.b32 {%0, %1}, [%2]", "ld.global.nc.v2.b32 {%1, %0}, [%2]", "rope_back"),
    (FRAGMENT, "ld.global.nc.b32 %0, [%1]", "ld.global.nc.b32 %0, [%1 + 4]", "residual"),
    (FRAGMENT, "upper ? low : high, bit)", "upper ? high : low, bit)", "residual"),
    (FRAGMENT, "low = upper ? got : low;", "low = got;", "residual"),
    (FRAGMENT, "exchange_in_quad(v[0], v[2], q, 2), exchange_in_quad(v[1], v[3], q, 2);", "", "own"),
    (FRAGMENT, "return (q & 1) * scaled<W>(8)", "return (~q & 1) * scaled<W>(8)", "residual"),
    (FRAGMENT, ("w, inside && j * kStride < left);", 1), "w, inside);", "residual"),
    (FRAGMENT, ("w, inside && j * kStride < left);", 1), "w, j * kStride < left);", "residual"),
    (FRAGMENT, "return 4 * q;", "return 4 * (q ^ 1);", "glu"),
    (FRAGMENT, "pack(T(), f.v[2], f.v[3])}", "0u}", "glu"),
    (
        FRAGMENT,
        ("const int left = valid - Count * lane;", 0),
        "const int left = valid + 1 - Count * lane;",
        "embedding",
    ),
    (FRAGMENT, "if (i < left) row[Count * lane + i]", "if (i + 1 < left) row[Count * lane + i]", "embedding"),
    (FRAGMENT, "static_cast<float>(row[Count * lane + i])", "static_cast<float>(row[Count * lane])", "embedding"),
    (
        FRAGMENT,
        "static_cast<const Access*>(from)[i];",
        "static_cast<const Access*>(from)[0];",
        "gemm_apply",
    ),
    (FRAGMENT, "  if (!inside) return;\n", "", "embedding"),
    # ---- ports on a tile
    (PORTS, "infinity()) <= abs(max)", "infinity()) < abs(max)", "lse_apply", minus_infinity),
    (PORTS, "infinity()) <= abs(max)", "infinity()) < abs(max)", "reduce", infinities),
    (TILE, "m2 + delta * (into[0] * share) * delta;", "m2;", "moments"),
    (TILE, "from_words<T, fragment<W>::count>(words, out.v);", "out = f;", "lse", stored_logits),
    (TILE, "from_words<T, fragment<W>::count>(words, out.v);", "out = f;", "lse_apply", stored_logits),
    (TILE, "into[1] += delta * share;", "into[1] += delta;", "moments"),
    (TILE, "x[c] = static_cast<float>(p[c]);", "x[c] = static_cast<float>(p[0]);", "embedding"),
    (TILE, "return filled<Width::Same>(p.reg[slot_]);", "return filled<Width::Same>(p.reg[0]);", "norm"),
    (TILE, "index < 0 || index >= p.rows", "index < 0", "embedding", tokens),
    (TILE, "(p.data + (index * p.pitch + run_column()),", "(p.data + (index * p.pitch),", "embedding"),
    (TILE, "(i) == hot ? 1.f : 0.f", "(i) == hot + 1 ? 1.f : 0.f", "cross_entropy"),
    (TILE, "head += column >= h * p.head_dim;", "head += column > h * p.head_dim;", "qknorm"),
    (TILE, "? mean + p.eps : p.otherwise", "? mean : p.otherwise", "qknorm", tiny_inputs),
    (
        TILE,
        "rows_behind(p.table, p.head_dim, position)",
        "rows_behind(p.table, p.head_dim, position ^ 1)",
        "rope_back",
    ),
    (
        TILE,
        ("i, column < p.columns && column < at_.cols,", 0),
        "i, column <= p.columns && column < at_.cols,",
        "rope_back",
    ),
    (TILE, "for (int c = 1; c < kN; ++c) sum", "for (int c = kN; c < kN; ++c) sum", "embedding"),
    (TILE, "Op::fold(acc[i], Op::first(f.v[i]))", "Op::first(f.v[i])", "fold_apply"),
    (TILE, "if (valid<W>(i)) n += 1.f, sum += f.v[i];", "n += 1.f, sum += f.v[i];", "moments"),
    (TILE, "sum * reciprocal(fmaxf(n, 1.f))", "sum", "moments"),
    (TILE, "m2 += (f.v[i] - mean) * (f.v[i] - mean);", "m2 += f.v[i] * f.v[i];", "moments"),
    (
        TILE,
        "x.v[i] = valid<W>(i) ? f.v[i] : -std::numeric_limits<float>::infinity();",
        "x.v[i] = f.v[i];",
        "lse_apply",
        minus_infinity,
    ),
    (TILE, "reg[1] = reg[1] * exp(reg[0] - shift) + folded<Sum>(x);", "reg[1] += folded<Sum>(x);", "lse"),
    (TILE, "reg[1] = reg[1] * exp(reg[0] - shift) + folded<Sum>(x);", "reg[1] = folded<Sum>(x);", "lse"),
    (TILE, "for (int half = f.count / 2; half > 0;", "for (int half = f.count / 2; half > 1;", "lse"),
    (TILE, "const int target = p.reg[slot_] - col_;", "const int target = p.reg[0] - col_;", "lse"),
    (TILE, "heads_.values[Slot] += sum;", "heads_.values[Slot] = sum;", "qknorm"),
    (TILE, "* at_.lane < width<W>();", "* at_.lane <= width<W>();", "lse_apply", minus_infinity),
    (TILE, "return col_ + G::kColumns * at_.lane + value", "return col_ + value", "lse_apply", minus_infinity),
    (TILE, "* G::kStride < at_.cols;", "* G::kStride <= at_.cols;", "lse_apply", minus_infinity),
    (TILE, "* G::kStride < at_.cols;", "* G::kStride <= at_.cols;", "lse", minus_infinity),
    (TILE, "return row_ * pitch + scaled<W>(col_);", "return row_ * pitch + col_;", "glu_apply"),
    (
        TILE,
        "return row_ * pitch + scaled<W>(col_);",
        "return static_cast<int>(static_cast<unsigned>(row_) * static_cast<unsigned>(pitch)) + scaled<W>(col_);",
        "cross_entropy",
        large_rows_anywhere,
    ),
    (
        FRAGMENT,
        "return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + offset);",
        "return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + static_cast<int>(offset));",
        "cross_entropy",
        large_rows_of_runs,
    ),
    (TILE, "column -= column >= head_dim ? head_dim : 0;", "", "rope"),
    (TILE, "row_ < (data ? at_.rows : 0) && run_column()", "data && run_column()", "embedding"),
    (TILE, "&& run_column() < at_.cols; }", "&& run_column() <= at_.cols; }", "embedding"),
    (TILE, "+ scaled<W>(at_.col) + first);", "+ scaled<W>(at_.col));", "residual"),
    (TILE, "row_ < (p.data ? at_.rows : 0), left);", "p.data != nullptr, left);", "residual"),
    (TILE, "columns_.words[number][patch_] + j * kChunkWords<G>", "columns_.words[number][patch_]", "residual"),
    (
        TILE,
        "Accumulator::count>(ahead_->words[number], f.v); });",
        "Accumulator::count>(ahead_->words[0], f.v); });",
        "rope",
    ),
    (
        TILE,
        "load_row(G(), p.data + offset<W>(p.pitch), f,",
        "load_row(G(), p.data + offset<Width::Same>(p.pitch), f,",
        "own",
    ),
    # ---- the life of a port
    (LIFECYCLE, "static_cast<float>(p.data[row(s)])", "static_cast<float>(p.data[row(0)])", "norm"),
    (
        LIFECYCLE,
        "OneHot& p) const { read_index(p, p.index, p.first_column); }",
        "OneHot& p) const { read_index(p, p.index, 0); }",
        "head",
    ),
    (LIFECYCLE, "load_chunk<G, W>(p.data + scaled<W>(column)", "load_chunk<G, W>(p.data + scaled<W>(col)", "embedding"),
    (LIFECYCLE, "normed = column + i < p.columns", "normed = column + i <= p.columns", "qknorm_back"),
    (LIFECYCLE, "(column + i < p.q_columns ? p.q : p.k)", "(column + i <= p.q_columns ? p.q : p.k)", "qknorm_back"),
    (LIFECYCLE, "each_slot([&](int s) { p.reg[s] = Op::template neutral<float>; });", "", "embedding"),
    (
        LIFECYCLE,
        "p.reg[2 * s] = -std::numeric_limits<float>::infinity(),",
        "p.reg[2 * s] = 0,",
        "lse_apply",
        minus_infinity,
    ),
    (
        LIFECYCLE,
        "write(p.data, p.pitch, s, block, p.reg[s]);",
        "write(p.data, p.pitch, 0, block, p.reg[s]);",
        "residual",
    ),
    (
        LIFECYCLE,
        "for (int bit = 1; bit < G::kLanes; bit *= 2) f(bit);",
        "for (int bit = 2; bit < G::kLanes; bit *= 2) f(bit);",
        "embedding",
    ),
    (LIFECYCLE, "Op::fold(p.reg[s], other(p.reg[s], bit))", "other(p.reg[s], bit)", "embedding"),
    (LIFECYCLE, "reg[1] = sum + other(sum, bit);", "reg[1] = sum;", "lse_apply"),
    (LIFECYCLE, "const float sum = reg[1] * exp(reg[0] - shift);", "const float sum = reg[1];", "lse_apply"),
    (LIFECYCLE, "f(s, found[s]);", "f(s, found[0]);", "lse"),
    (
        LIFECYCLE,
        "found[s] = data[min(row(s), at.rows - 1)];",
        "found[s] = data[min(row(s) & ~1, at.rows - 1)];",
        "embedding",
    ),
    (LIFECYCLE, " - static_cast<std::uint64_t>(first);", ";", "head"),
    (LIFECYCLE, "x <= kMost ?", "true ?", "lse", targets),
    (LIFECYCLE, "at.lane == 0 && row(s) < at.rows", "at.lane == 0", "embedding"),
    (LIFECYCLE, "(static_cast<unsigned>(row(0)) * pitch + block)", "(row(0) * pitch)", "residual"),
    (LIFECYCLE, "out[row(s) * pitch + block]", "out[row(s) * pitch]", "embedding"),
    (LIFECYCLE, "rows_behind(out + block, pitch, row(s))", "rows_behind(out, pitch, row(s))", "embedding"),
    (LIFECYCLE, "static_cast<std::uint64_t>(i) < static_cast<std::uint64_t>(rows)", "true", "rope_back", tokens),
    (LIFECYCLE, "G::kColumns * at.lane, words[patch]", "G::kColumns * (at.lane ^ 1), words[patch]", "embedding"),
    # ---- a thread's work on a tile
    (WORKER, "+ 2 * r + i % 2);", "+ 2 * (1 - r) + i % 2);", "norm"),
    (WORKER, "+ slot % kRowsHere * 8;", "+ slot % kRowsHere * 4;", "norm"),
    (WORKER, "sub_m * Config::kSubtileM + 8 * r;", "sub_m * Config::kSubtileM + 4 * r;", "residual"),
    (WORKER, "(port, at.col + sub_n * Config::kSubtileN,", "(port, at.col,", "residual"),
    (WORKER, "folds.v[number][patch][i] = Op::template neutral<float>;", "", "rms_backward"),
    (WORKER, "const bool upper = lane & 4 * half;", "const bool upper = lane & 2 * half;", "rms_backward"),
    (WORKER, "theirs, 4 * half)", "mine, 4 * half)", "rms_backward"),
    (WORKER, "2 * (lane % 4) + value % 2;", "2 * (lane % 4);", "rms_backward"),
    (
        WORKER,
        "for (int row = 1; row < Shared::kRows; ++row) {",
        "for (int row = 2; row < Shared::kRows; ++row) {",
        "rms_backward",
    ),
    (WORKER, "at.rows && at.col + column < at.cols;", "at.rows;", "rms_backward"),
    (WORKER, "for (int bit = 1; bit < Quad::kLanes; bit *= 2) {", "for (int bit = 1; bit < 2; bit *= 2) {", "qknorm"),
    (WORKER, "      sum = 0;\n", "", "qknorm"),
    (WORKER, "head += end > h * head_dim;", "", "qknorm"),
    (WORKER, "      synchronize();\n      for (int column", "      for (int column", "rms_backward", many_rms_tiles),
    (WORKER, "first += 1 - 2 * team;", "", "rms_backward"),
    (WORKER, "heads = {shared->heads[row_of_tile() + (row - at.row)]", "heads = {shared->heads[0]", "qknorm"),
    # ---- the program on a tile, shared memory, and the copy engine that fills and empties it
    (EPILOGUE, "(kRowBytes == 128 ? row : row / 2)", "0", "norm"),
    (
        EPILOGUE,
        "chunk(8 * r + lane % 8, 4 * patch + lane / 8)",
        "chunk(8 * (1 - r) + lane % 8, 4 * patch + lane / 8)",
        "norm",
    ),
    (EPILOGUE, "2 * j + lane % 4 / 2)", "2 * j)", "glu_backward"),
    (EPILOGUE, "shared.signals.empty[stage].wait(phase(i, s) ^ 1);", "", "rms_backward", many_rms_tiles),
    (
        EPILOGUE,
        "i * (kSubtiles / kStagesC) + s / kStagesC)",
        "i * (kSubtiles / kStagesC))",
        "rms_backward",
        many_rms_tiles,
    ),
    (EPILOGUE, "n * Config::kN + sub_n * Config::kSubtileN, row", "n * Config::kN, row", "residual"),
    (EPILOGUE, "Config::kWarps * place(Number) + warp *", "warp *", "rms_backward"),
    (EPILOGUE, "+ warp * SlabC<Number>::kBytes;", ";", "residual"),
    (
        EPILOGUE,
        "const int row = at.warp_row + sub_m * Config::kSubtileM,",
        "const int row = at.warp_row,",
        "rope",
    ),
    (EPILOGUE, "shared.signals.empty[(kSubtiles - 1) % kStagesC].arrive();", "", "residual", many_tiles),
    (EPILOGUE, "thread / 32, 0) * SlabD::kRows;", "thread / 32, 0) * 8;", "norm"),
    (EPILOGUE, "at.tile_n = n *", "at.tile_n = 0 *", "residual"),
    (
        EPILOGUE,
        "const int block = at.tile_n + sub_n / Config::kBlockSubtiles;",
        "const int block = at.tile_n + 1;",
        "residual",
    ),
    (EPILOGUE, "acc(number + sub_m * (Config::kN / 2))", "acc(number)", "rope"),
    (
        EPILOGUE,
        "(sub_n * kPatches + patch) * kRowsHere * Accumulator::count",
        "patch * kRowsHere * Accumulator::count",
        "norm",
    ),
    (EPILOGUE, "worker.fetch(sub_m, sub_n + 1, patch, r);", "worker.fetch(sub_m, sub_n, patch, r);", "rope"),
    (TILE, "(c_[kLoad<number>], f.v);", "(c_[0], f.v);", "rms_backward"),
    (TILE, "d_[i] = words[i];", "d_[i] = words[i ^ 1];", "norm"),
    (MAINLOOP, "step % kStages)), phase", "0 * step % kStages)), phase", "residual", many_tiles),
    (MAINLOOP, "is_full = (full + next.index).is_complete(next.phase);", "is_full = true;", "residual", many_tiles),
    (MAINLOOP, "if (!is_full) (full + stage.index).wait(stage.phase);", "", "residual", many_tiles),
    (
        EPILOGUE,
        "shared.signals.full[i % Config::kTeams][stage],",
        "shared.signals.full[0][stage],",
        "residual",
        many_tiles,
    ),
    (EPILOGUE, "phase(i / Config::kTeams, of_tile));", "phase(i, of_tile));", "gemm", many_gemm_tiles),
    (FRAGMENT, "got, odd ? 0x3254 : 0x5410);", "got, 0x5410);", "glu"),
    (EPILOGUE, "at.row = at.warp_row + thread % 32 / 4;", "at.row = at.warp_row + thread % 32 / 8;", "norm"),
    (EPILOGUE, ("worker.load_columns(sub_n + 1);", 0), "worker.load_columns(sub_n);", "residual"),
    # ---- a thread block's last tile
    # Survives: what comes late is there in time, even with a cold L2 cache.
    (EPILOGUE, "shared.signals.late[of_tile - kStagesC].wait(0);", "", "rms_backward", many_rms_tiles),
    (EPILOGUE, "const int number = room_number * kOfRoom + i;", "const int number = i;", "rms_backward"),
    (EPILOGUE, "m, n, kStagesC + number);", "m, n, number);", "residual"),
    (EPILOGUE, "return at < kBytes ? a + at : b + (at - kBytes);", "return a + at % kBytes;", "glu_backward"),
    (KERNEL, "turn.done + turn.steps + Epilogue::kRooms", "turn.done + turn.steps", "glu_backward"),
    (KERNEL, "handed_over.wait(0);", "", "glu_backward"),
    (KERNEL, "const int i = kUnitValues + v;", "const int i = v;", "glu_backward"),
    (KERNEL, "accumulators(v) = accumulators(v + kUnitValues);", ";", "glu_backward", many_glu_tiles),
    (KERNEL, "at.m, at.n, helps, team, rank);", "at.m, at.n, 0, team, rank);", "glu_backward"),
    (WORKER, "unit() * Config::kWarps + thread / 32", "thread / 32", "rms_backward"),
    (WORKER, "row < Config::kWarps ? first : shared;", "shared;", "rms_backward"),
    # ---- the kernel around it
    (KERNEL, "side += band * width_.divisor;", "", "residual", fuzz("gemm_residual", 0, 800)),
    (
        SCHEDULE,
        "rounds_ + (cluster >= first_owner_ && cluster < first_owner_ + left_);",
        "rounds_;",
        "residual",
        many_tiles,
    ),
    (SCHEDULE, "{number * clusters_ + cluster -", "{cluster -", "residual", many_tiles),
    (KERNEL, "at.n * kClusterN + block_index().y", "at.n * kClusterN", "residual"),
    (KERNEL, "if (i == 0 && step == turn.steps / 2) shared.half_loaded.arrive();", "", "residual"),
    # ---- a last round that is split
    (SCHEDULE, "left_steps_ + part * piece_steps_;", "left_steps_;", "gemm", split_gemm),
    (SCHEDULE, "left * of_helper_ + number, k,", "left * of_helper_, k,", "residual", split_residual),
    (SCHEDULE, "std::min(piece_steps_, steps_ - k)", "std::min(piece_steps_, steps_ - k - 1)", "gemm", split_gemm),
    (SCHEDULE, "left < 0 ? 0 : of_tile_}", "left < 0 ? 0 : of_tile_ - 1}", "gemm", split_gemm),
    (SCHEDULE, "return of_helper_ == 1 ? cluster :", "return of_helper_ == 1 ? 0 :", "gemm", split_gemm),
    (KERNEL, "kCooperative ? own * kTeams + team : own)", "number)", "glu_backward", split_glu),
    (KERNEL, "accumulators(v) += x.x,", "accumulators(v) = x.x,", "gemm", split_gemm),
    (KERNEL, "if (!__any_sync(0xffffffffu, there != params.sums.launch)) break;", "break;", "gemm", split_gemm),
    (KERNEL, "if (rank < slots.count) params.sums.flags[part + rank * kSlotFlags] = 0;", "", "gemm", split_replays),
    (KERNEL, "slot * kSlotFlags + block_index().y * kTeamsAtOnce", "slot * kSlotFlags", "gemm", split_gemm),
    (KERNEL, "from += kSlotValues / 4)", "from += 0)", "gemm", split_gemm),
    (KERNEL, "(band < full_bands_ ? width_ : last_width_)", "width_", "residual", fuzz("gemm_residual", 0, 800)),
    (GEMM, "(x.rows, x.cols, x.pitch, sizeof(T))", "(x.rows, x.cols, x.cols, sizeof(T))", "norm"),
    (GEMM, "(cols * element + 15)", "(pitch * element + 15)", "norm", single_row),
    (GEMM, "cols * kInWord, port.pitch", "port.pitch, port.pitch", "norm", single_row),
    (KERNEL, "shared.operands.a[stage.index] + box * kBoxRowsA * kK, k,", "shared.operands.a[stage.index], k,", "norm"),
    # ---- both teams at once
    (
        KERNEL,
        "return {kCooperative ? at.m * kTeams + team : at.m,",
        "return {kCooperative ? at.m * kTeams : at.m,",
        "residual",
    ),
    (KERNEL, "(kCooperative ? team * (kTeamThreads / kWarpGroup) : 0);", "0;", "residual"),
    (KERNEL, "turn.done, turn.steps, accumulators", "0, turn.steps, accumulators", "residual", many_tiles),
    (KERNEL, "team_tile(params, last.tile, kTeamsAtOnce - 1)", "team_tile(params, last.tile, 0)", "residual"),
    (KERNEL, "((team * kTurns + turn) * kGroups + group)", "box", "rms_backward"),
    (MAINLOOP, "kHint, to, k, n);", "kHint, to, k, n ^ kN);", "norm"),
    (MAINLOOP, "to + i * kK, n + i, k);", "to + i * kK, n, k);", "rms_backward"),
    (TILE, "col_ == at_.col ? at_.head_column : column % p.head_dim;", "at_.head_column;", "rope_back", wide_rope_rows),
    (TILE, "col_ == at_.col ? at_.head_column : column % p.head_dim;", "column % p.head_dim + 1;", "qknorm_back"),
    (APPLY, "(at.col + G::kColumns * at.lane) % head_dim;", "at.col % head_dim;", "qknorm_back"),
    (GEMM, "(absent_ports(program) & kOptional) == kOptional", "(absent_ports(program) & kOptional) == 0", "gemm"),
    (
        "choice.h",
        "k > 0 && k % 8 == 0 && n % 8 == 0;",
        "k > 0 && k % 8 == 0;",
        "residual",
        fuzz("gemm_residual", 0, 1500),
    ),
    # ---- the program behind a product
    (APPLY, "for (int i = lane; i < head_dim;", "for (int i = lane + Run<false>::kLanes; i < head_dim;", "qknorm_back"),
    (APPLY, "means[slot * row.stride + head] =", "means[head] =", "qknorm_back"),
    (APPLY, "? at.col + extent.tile_n :", "? at.col + 2 * extent.tile_n :", "qknorm_back"),
    (APPLY, "first_block_n + run / rows_at_once;", "first_block_n;", "qknorm_back"),
    (APPLY, "first_block_n + run / rows_at_once;", "first_block_n;", "rope_back"),
    (APPLY, "thread_row = run % rows_at_once,", "thread_row = run,", "qknorm_back"),
    (APPLY, "at.col < extent.cols ? min(", "true ? min(", "qknorm_back"),
    (APPLY, "end_block(block_n + t + b);", "end_block(block_n + t);", "lse"),
    (APPLY, "accumulator(0, col(b));", "accumulator(0, col(0));", "erf_apply"),
    (APPLY, "          if (col(b) >= at.cols) break;\n", "", "lse"),
    (APPLY, "block_n + s * extent.across : block_n", "block_n + s : block_n", "cross_entropy", wide_rows),
    (
        APPLY,
        "at.col + s * step_cols : at.col;",
        "at.col + s * static_cast<int>(kTileN) : at.col;",
        "rope_back",
        wide_rows,
    ),
    (APPLY, "      ask(s + ring.kStages);\n", "      ask(s + ring.kStages + 1);\n", "cross_entropy", wide_rows),
    (APPLY, "      ring.close();\n", "", "qknorm_back"),
    (APPLY, "begin_tile(asking, lifecycle_of_asked);\n        ring", "\n        ring", "qknorm_back"),
    (RING, 'wait_group %0;" ::"n"(kStages - 1)', 'wait_group %0;" ::"n"(kStages)', "cross_entropy", wide_rows),
    (RING, "step % kStages * kStageBytes", "step % kStages * 0", "embedding", wide_rows),
    (RING, "address += kPieces<Port> *", "address += 0 *", "rope_back"),
    (
        APPLY,
        "fetch(tile_at(slot, slot, 0, at.col, shared_columns), ahead[slot]);",
        "fetch(tile_at(slot, 0, 0, at.col, shared_columns), ahead[slot]);",
        "fold_apply",
    ),
    (
        APPLY,
        "if (bit < lanes) x += other;",
        "if (bit < lanes / 2) x += other;",
        "qknorm_back",
    ),
    (APPLY, "own[slot], first + i, Run<false>::kLanes);", "own[slot], i, Run<false>::kLanes);", "qknorm_back"),
    (APPLY, "      CODA_UNROLL for (float& sum : head_sums) sum = 0;\n", "", "qknorm_back"),
    (
        APPLY,
        "extent.first_row + block_m * rows;",
        "block_m * rows;",
        "gemm",
        large_bias,
    ),
    (
        APPLY,
        "for (int row = 1; row < rows_at_once; ++row)",
        "for (int row = 2; row < rows_at_once; ++row)",
        "fold_apply",
    ),
    (APPLY, "port.data[tile_row / kTileM * port.pitch + col] = sum;", "port.data[col] = sum;", "fold_apply"),
    (
        APPLY,
        "shared_bytes<Program, HasProduct, Ragged>(kMaxTileN);",
        "shared_bytes<Program, HasProduct, Ragged>(kTileN);",
        "qknorm_back",
        heads_of_threads,
    ),
    (APPLY, "min<std::int64_t>(16, kChunkBytes<Run<false>, T, Port::width>)", "min<std::int64_t>(16, 8)", "own"),
    (APPLY, "doubles ? kMost / 2 : kMost;", "kMost;", "glu_backward", too_wide),
    (APPLY, "fold_memory[first_run + row][column]", "fold_memory[row][column]", "qknorm_back"),
    (APPLY, "      __syncthreads();\n      // A thread for", "      // A thread for", "fold_apply"),
    (APPLY, "ragged = call.n % 8 != 0 ||", "ragged =", "embedding"),
    (APPLY, "ceil_div(tiles_n, extent.tiles);", "tiles_n / extent.tiles;", "embedding"),
    (APPLY, "!ports_aligned(program, call.m) ||", "", "embedding"),
    (APPLY, " || !rows_are_near(program, call.n)", "", "qknorm_back", large_rows),
    (APPLY, "ceil_div(last - first, Cover::rows(", "ceil_div(last - first, 2 * Cover::rows(", "embedding"),
    (PRODUCT, "if (call.m == 0 || call.n == 0) return;", "", "residual", empty),
    # ---- K in parts
    (SPLIT_K, "first = part * all_steps / parts,", "first = 0 * all_steps / parts,", "gemm", split_k),
    (SPLIT_K, "steps = (part + 1) * all_steps / parts - first;", "steps = all_steps / parts;", "gemm", split_k),
    (
        SPLIT_K,
        "m = tile % params.tiles_m, n = tile / params.tiles_m;",
        "m = tile / params.tiles_m, n = tile % params.tiles_m;",
        "gemm",
        split_k,
    ),
    (SPLIT_K, "while (box < kM && box < rows)", "while (box < kM && 2 * box < rows)", "gemm", split_k),
    (SPLIT_K, "const bool fits = kChip", "const bool fits = m < 40 && kChip", "gemm", few_rows_alone),
    (SPLIT_K, "has_rows = work.at.warp_row <", "has_rows = work.at.warp_row + 16 <", "gemm", split_k),
    (SPLIT_K, "if (has_rows) send(", "if (has_rows && part > 0) send(", "residual", split_k_residual),
    (SPLIT_K, "if (has_rows) add(", "if (!has_rows) add(", "residual", split_k_residual),
    (SPLIT_K, "band * kBandBytes +", "0 * kBandBytes +", "gemm", split_k),
    (SPLIT_K, "for (int part = 0; part < parts; ++part)", "for (int part = 1; part < parts; ++part)", "gemm", split_k),
    (SPLIT_K, "owner = warp % parts, first_band", "owner = 0, first_band", "gemm", split_k),
    (SPLIT_K, "first_band = warp / parts * parts;", "first_band = 0;", "gemm", split_k),
    (SPLIT_K, "&& part < kTeamWarps && m * kM", "&& part == 0 && m * kM", "residual", split_k_residual),
    (SPLIT_K, "accumulators(v + 2) += x.z", "accumulators(v + 2) += x.y", "gemm", split_k),
    (SPLIT_K, "shared.signals.empty[stage.index].wait(stage.phase ^ 1);", "", "gemm", split_k),
    # ---- kernels that follow each other
    (LAUNCH, "config.gridDimY = blocks.count.y", "config.gridDimY = 1", "launch"),
    (LAUNCH, "{blocks.of_cluster.x, blocks.of_cluster.y, blocks.of_cluster.z}", "{1, 1, 1}", "launch"),
    (LAUNCH, "static_cast<unsigned>(blocks.shared_bytes)", "static_cast<unsigned>(blocks.shared_bytes / 2)", "launch"),
    (
        LAUNCH,
        "!context && cudaGetDevice(&device) == cudaSuccess",
        "false",
        "launch",
        tests("kernels_test", "Kernels.fill_from_a_thread*"),
    ),
    (ENQUEUE, 'asm volatile("griddepcontrol.wait;" ::: "memory");', "", "small", in_order),
    (ENQUEUE, 'asm volatile("griddepcontrol.wait;" ::: "memory");', "", "residual", in_order),
    (ENQUEUE, 'asm volatile("griddepcontrol.wait;" ::: "memory");', "", "reduce", in_order),
    (
        TILE,
        "p.data + (at_.row * p.pitch + scaled<W>(at_.col) + first);",
        "p.data + static_cast<int>(at_.row * p.pitch + scaled<W>(at_.col) + first);",
        "residual",
        large_residual,
    ),
    # ---- the small kernels
    (REDUCE, "bit > 0; bit /= 2) x += __shfl", "bit > 1; bit /= 2) x += __shfl", "reduce"),
    (REDUCE, "bit > 0; bit /= 2) x = fmaxf", "bit > 1; bit /= 2) x = fmaxf", "reduce"),
    (REDUCE, "if (lane == r) mine = total;", "mine = total;", "reduce"),
    (REDUCE, "const bool there = u * Step < left;", "const bool there = true;", "reduce"),
    (REDUCE, "(s.squares - s.sum * deviation)", "s.squares", "reduce"),
    (REDUCE, "tile == last ? last_columns : 0.0", "tile == last ? static_cast<double>(kTileN) : 0.0", "reduce"),
    (REDUCE, "s.total = scaled(s.total, s.top - shift);", "", "reduce"),
    (REDUCE, "sum == 0 ? 0.f : sum * expf(x)", "sum * expf(x)", "reduce", infinities),
    (REDUCE, "index == ignore_index ? 0.f : static_cast<float>(x)", "static_cast<float>(x)", "reduce"),
    (REDUCE, "if (static_cast<std::uint64_t>(index) >= vocabulary)", "if (false)", "reduce"),
    (REDUCE, "if (static_cast<std::uint64_t>(index) >= vocabulary)", "if (index > 999)", "reduce"),
    (REDUCE, "at.row * pitch + at.col * head_dim", "at.row * pitch", "reduce"),
    (REDUCE, "sum[c] += row + u * step < rows ?", "sum[c] += true ?", "reduce"),
    (REDUCE, "of_warp[thread / 32][lane * 4 + c] =", "of_warp[0][lane * 4 + c] =", "reduce"),
    (REDUCE, "for (int w = 0; w < kWarps; ++w) total", "for (int w = 1; w < kWarps; ++w) total", "reduce"),
    (REDUCE, "for (unsigned b = 0; b < blocks; ++b) total", "for (unsigned b = 1; b < blocks; ++b) total", "reduce"),
    (SMALL, "in + at.row * in_pitch + at.col", "in + at.row * out_pitch + at.col", "small", fuzz("cast", 1)),
    (SMALL, "out + at.row * pitch + at.col", "out + at.row * pitch", "small"),
    (SMALL, "index == ignore_index ||", "", "small"),
    (SMALL, "|| static_cast<std::uint64_t>(index) >= vocabulary ?", "?", "small"),
    (SMALL, ("at = first + u * kThreads * C,", 1), "at = first,", "small"),
    (SMALL, "if (!(scale == scale)) return;", "", "small"),
    (SMALL, "for (int w = 0; w < kThreads / 32; ++w) sum", "for (int w = 1; w < kThreads / 32; ++w) sum", "small"),
    (SMALL, "(beta == 0 ? 0 : beta * *out)", "beta * *out", "small"),
    (
        CHUNKS,
        "/ static_cast<std::uint64_t>(per_row_) + 1 : 0)",
        "/ static_cast<std::uint64_t>(per_row_) : 0)",
        "small",
    ),
    (CHUNKS, "    if (chunk < 0) --row, chunk += per_row_;\n", "", "small", large_fill),
    (
        TABLE,
        "    cudaGetLastError();  // CUB would take an error that somebody left behind for its own\n",
        "",
        "table",
        left_behind,
    ),
    (TABLE, "begun = first > 0 && gradient.same_token(first, first - 1);", "begun = false;", "table"),
    (TABLE, "      begun = begun && !ends_here;\n", "", "table"),
    (TABLE, "goes_on = i == kChunkPlaces - 1 && i < count && !ends_here;", "goes_on = false;", "table"),
    (TABLE, "gradient.partial_row(chunk, !begun)", "gradient.partial_row(chunk, false)", "table"),
    (TABLE, "partial = goes_on || (ends_here && begun);", "partial = goes_on;", "table"),
    (TABLE, "if (writes[u] && !partial) {", "if (writes[u]) {", "table"),
    (TABLE, "const bool there = first + lane < gradient.rows && ", "const bool there = ", "table"),
    (TABLE, "row = row_of(gradient.sorted[place]);", "row = place;", "table"),
    (TABLE, "        sum[unit] = {};\n", "", "table"),
    (TABLE, "gradient.partial_row(behind + from + u, false)", "gradient.partial_row(behind + from + u, true)", "table"),
    (TABLE, "(first == 0 || !gradient.same_token(next, first - 1))", "first == 0", "table"),
    (TABLE, "count == 32; behind += 32", "count == 33; behind += 32", "table"),
    (TABLE, "tokens != 0; tokens &= tokens - 1", "tokens != 0; tokens = 0", "table"),
    (TABLE, "if (from + u >= count || left <= 0) continue;", "if (left <= 0) continue;", "table"),
    (TABLE, "t >= 0 && t < vocabulary", "t < vocabulary", "table"),
    (TABLE, "there && bucket == blockIdx.x", "bucket == blockIdx.x", "table"),
    (TABLE, "below += there && bucket", "below += bucket", "table"),
    (TABLE, "token == vocabulary ? kBuckets - 1 :", "", "table"),
    (TABLE, "<< kBucketBits | blockIdx.x, vocabulary)", "<< kBucketBits | blockIdx.x, UINT32_MAX)", "table"),
    (TABLE, "__shfl_sync(kAll, before, 0) % ", "before % ", "table"),
    (TABLE, "shared.words[S::place(i)] < word", "shared.words[S::place(i)] <= word", "table"),
    (TABLE, "if (mine <= S::kFew) {", "if (mine <= 8 * S::kFew) {", "table"),
    (TABLE, "words[i] = j < count ?", "words[i] = j < count - 1 ?", "table"),
    (TABLE, "rows <= kMostRows && ", "rows <= 2 * kMostRows && ", "table"),
    # ---- the library's products, and memory
    (BLAS, "std::min(kMaxAlignment, std::int64_t{1}", "std::max(kMaxAlignment, std::int64_t{1}", "blas"),
    (BLAS, "MATMUL_DESC_TRANSA, !b_is_kn", "MATMUL_DESC_TRANSA, !a_is_km", "blas"),
    (BLAS, "addend.data, opaque(d.c)", "out.data, opaque(d.c)", "blas"),
    (BLAS, "if (alignment < kMaxAlignment) return false;", "", "blas", algorithms),
    (BLAS, "if (key.algorithm) return *key.algorithm;", "", "blas", algorithms),
    (BLAS, "if (beta == 0) return fill(op, out, 0, stream);", "if (beta == 0) return;", "blas"),
    (BLAS, "return cast(op, c, out, beta, stream);", "return cast(op, c, out, 1, stream);", "blas"),
    (BLAS, ".pitch_b = b.pitch,", ".pitch_b = a.pitch,", "blas"),
    (WORKSPACE, "data_(std::exchange(other.data_, nullptr))", "data_(other.data_)", "workspace"),
    (
        WORKSPACE,
        "detail::forget(cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_)));",
        "",
        "workspace",
        without_growth,
    ),
    (
        WORKSPACE,
        "  detail::forget(cudaFreeAsync(data_",
        "  cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));\n  detail::forget(cudaFreeAsync(data_",
        "workspace",
        without_growth,
    ),
    (WORKSPACE, "if (!memory || entry.identity == identity)", "", "workspace", kept_memory),
    (WORKSPACE, "if (capture != cudaStreamCaptureStatusNone) return nullptr;", "", "workspace", kept_memory),
    (WORKSPACE, " && bytes <= kKeptBytes", "", "workspace", kept_memory),
    (WORKSPACE, "kept_(other.kept_)", "kept_(false)", "workspace", kept_memory),
    (WORKSPACE, "entry.identity = identity;", "entry.identity = 0;", "workspace", kept_memory),
    (WORKSPACE, ("const detail::RelaxedCapture relaxed;", 1), "", "workspace", capture),
    (WORKSPACE, ("const detail::RelaxedCapture relaxed;", 2), "", "workspace", capture),
    (WORKSPACE, ("const detail::RelaxedCapture relaxed;", 3), "", "workspace", capture),
]
