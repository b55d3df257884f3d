/* The checked calls from C99: half of a LLaMA layer's feed-forward behind its RMSNorm, y = SwiGLU(rstd x W), and what
   an error says. README.md shows it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coda/c/coda.h"

enum { tokens = 48, hidden = 256, ffn = 384 };

static int check(coda_status status) {
  if (status != CODA_OK) fprintf(stderr, "%s\n", coda_last_error());
  return status == CODA_OK;
}

static float* values(int count, double scale) {
  float* v = malloc((size_t)count * sizeof(float));
  int i;
  for (i = 0; v && i < count; ++i) v[i] = (float)(scale * sin((double)(7 * i % 1009)));
  return v;
}

/* The largest error of y against fp64, in units of the largest value. */
static double error_of(const float* y, const float* x, const float* w, const float* rstd) {
  double error = 0, scale = 0;
  int m, j, i, k;
  for (m = 0; m < tokens; ++m) {
    for (j = 0; j < ffn; ++j) {
      double z[2] = {0, 0}, want;
      for (i = 0; i < 2; ++i) {
        for (k = 0; k < hidden; ++k) z[i] += (double)x[m * hidden + k] * w[(2 * j + i) * hidden + k];
        z[i] *= rstd[m];
      }
      want = z[0] / (1 + exp(-z[0])) * z[1];
      error = fmax(error, fabs(y[m * ffn + j] - want));
      scale = fmax(scale, fabs(want));
    }
  }
  return error / scale;
}

int main(void) {
  float* x = values(tokens * hidden, 1);
  float* w = values(2 * ffn * hidden, 0.1); /* rows gate 0, up 0, gate 1, up 1, ... */
  float* rstd = values(tokens, 0);
  float* y = values(tokens * ffn, 0);
  coda_gemm_norm_glu_args args = coda_gemm_norm_glu_defaults();
  int m, refused, good = x && w && rstd && y;
  if (!good) return 1;
  for (m = 0; m < tokens; ++m) rstd[m] = 0.5f + (float)m / tokens;

  args.a = coda_const_matrix_of(x, CODA_DTYPE_FP32, tokens, hidden);
  args.b = coda_const_matrix_of(w, CODA_DTYPE_FP32, 2 * ffn, hidden);
  args.norm.rstd = coda_const_vector_of(rstd, CODA_DTYPE_FP32, tokens);
  args.function = CODA_GLU_SWIGLU;
  args.out = coda_matrix_of(y, CODA_DTYPE_FP32, tokens, ffn);
  good = check(coda_gemm_norm_glu(&args));

  printf("coda %s from C: relative error %.1e\n", coda_version(), error_of(y, x, w, rstd));
  good = good && error_of(y, x, w, rstd) < 1e-5;

  args.norm.rstd.size = 7;
  refused = coda_gemm_norm_glu(&args) == CODA_INVALID_ARGUMENT;
  printf("as it should: %s\n", coda_last_error());

  free(x);
  free(w);
  free(rstd);
  free(y);
  return good && refused ? 0 : 1;
}
