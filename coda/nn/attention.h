// Causal grouped-query attention on the CPU: plain products of blocks of rows with the softmax between them. It stands
// for the library attention that sits between two blocks of programs.
#pragma once

#include <cstdint>

#include "coda/core/tensor.h"

namespace coda::nn {

/// out = softmax(q k^T / sqrt(head_dim)) v for each sequence and head. Query head h reads key and value head
/// h / (heads / kv_heads). Each sequence has q.rows / batch queries and k.rows / batch keys, at least as many; the last
/// query sees all keys, the one before it all but one, and so on: what it does not see has a weight of 0, so that a
/// value there that is infinite or NaN may give NaN. Matrices are bf16, fp16, fp32 or fp64, all alike, and may be
/// column slices of one buffer; lse has the statistics' type. Bitwise the same for any number of threads.
struct Attention {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, head_dim = 0;
  ConstMatrix q;     // (batch·queries, heads·head_dim)
  ConstMatrix k, v;  // (batch·keys, kv_heads·head_dim)
  Matrix out;        // as q
  Matrix lse = {};   // (batch·queries, heads), optional: log-sum-exp of each row, kept for the backward
};
void attention(const Attention& args);

/// Gradients of q, k and v from that of out. The softmax is computed again from lse, never kept.
struct AttentionBackward {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, head_dim = 0;
  ConstMatrix q, k, v, out, dout;
  ConstMatrix lse;
  Matrix dq, dk, dv;  // as q, k, v
};
void attention_backward(const AttentionBackward& args);

}  // namespace coda::nn
