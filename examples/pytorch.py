#!/usr/bin/env python3
"""A small Transformer of PyTorch's parameters and attention and CODA's layers learns to continue a text.

pip install --no-build-isolation .   (or PYTHONPATH=build/cpu/python), then: python examples/pytorch.py
"""

import torch
import torch.nn.functional as F
from pycoda import BlockWeights, HeadWeights, Heads, QkvWeights
from pycoda.functional import block, block_post, block_pre, rotary_table

TEXT = b"Everything in a Transformer but attention runs in the epilogues of its matrix products. " * 4
HIDDEN, FFN, LAYERS, HEADS, HEAD_DIM, VOCABULARY = 64, 160, 2, 4, 16, 256

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32


def matrix(rows, columns):
    return torch.nn.Parameter(torch.randn(rows, columns, device=device).mul(columns**-0.5).to(dtype))


def norm():
    return torch.nn.Parameter(torch.ones(HIDDEN, device=device, dtype=dtype))


width = HEADS * HEAD_DIM
table = matrix(VOCABULARY, HIDDEN)
qkv_weights = [QkvWeights(norm(), matrix(3 * width, HIDDEN)) for _ in range(LAYERS)]
layers = [
    BlockWeights(matrix(HIDDEN, width), norm(), matrix(2 * FFN, HIDDEN), matrix(HIDDEN, FFN)) for _ in range(LAYERS)
]
head = HeadWeights(norm(), matrix(VOCABULARY, HIDDEN))
frequency = 10000.0 ** -(torch.arange(0, HEAD_DIM, 2, device=device) / HEAD_DIM)
heads = Heads(HEADS, HEADS, HEADS, HEAD_DIM, rotary_table(frequency, len(TEXT)))


def attention(qkv):
    """(tokens, Q) of qkv (tokens, W)."""
    q, k, v = (part.unflatten(1, (HEADS, HEAD_DIM)).transpose(0, 1) for part in qkv.split(width, 1))
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0].transpose(0, 1).flatten(1)


def loss_of(token, target):
    x, qkv = block_pre(token, table, qkv_weights[0], heads)
    for layer, next in zip(layers, qkv_weights[1:], strict=False):
        x, qkv = block(attention(qkv), x, layer, next, heads)
    return block_post(attention(qkv), x, layers[-1], head, target)


parameters = [table, *(w for group in (*qkv_weights, *layers, head) for w in group if w is not None)]
optimizer = torch.optim.AdamW(parameters, lr=3e-3)
text = torch.tensor(list(TEXT), device=device)
for step in range(61):
    loss = loss_of(text[:-1], text[1:])
    if step % 20 == 0:
        print(f"step {step:2}: {loss.item():.3f} nats per byte")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
if not loss.item() < 1:
    raise SystemExit("it did not learn")
