"""A layer without attention in plain PyTorch: from attention's output to the next layer's queries, keys and values."""

import dataclasses

import torch
import torch.nn.functional as F
from programs import EPS, ROPE_BASE, rotate

SEQUENCE, BATCH = 8192, 2
TOKENS = SEQUENCE * BATCH


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    ffn: int
    q_heads: int
    kv_heads: int
    head_dim: int

    @property
    def attended(self) -> int:
        return self.q_heads * self.head_dim

    @property
    def qkv(self) -> int:
        return (self.q_heads + 2 * self.kv_heads) * self.head_dim


# LLaMA-3 1B, 8B and 70B, as in coda/cli/sm90/layer.cpp.
SHAPES = [Shape(2048, 8192, 32, 8, 64), Shape(4096, 14336, 32, 8, 128), Shape(8192, 28672, 64, 8, 128)]
GATE_UP = 4  # among the inputs


class Layer:
    """`inputs` and the gradients of the outputs, on the device; `forward` is what torch.compile is given."""

    def __init__(self, shape: Shape, device: str, tokens: int = TOKENS, dtype=torch.bfloat16):
        self.shape, self.tokens = shape, tokens
        generator = torch.Generator(device).manual_seed(1)

        def noise(*size: int, scale: float = 1.0) -> torch.Tensor:
            return (torch.randn(*size, generator=generator, device=device) * scale).to(dtype)

        def linear(out: int, width: int) -> torch.Tensor:
            return noise(out, width, scale=width**-0.5)

        h, f, s = shape.hidden, shape.ffn, shape
        # attended, x, and the weights: output projection, norm, gate and up, down, the next layer's norm and QKV
        self.inputs = [
            *(noise(tokens, s.attended), noise(tokens, h), linear(h, s.attended), noise(h)),
            *(linear(2 * f, h), linear(h, f), noise(h), linear(s.qkv, h)),
        ]
        self.gradients = [noise(tokens, h), noise(tokens, s.qkv)]
        frequency = ROPE_BASE ** (-torch.arange(0, s.head_dim, 2, device=device, dtype=torch.float64) / s.head_dim)
        angle = (torch.arange(tokens, device=device) % SEQUENCE)[:, None] * frequency
        self.rotary = torch.stack((angle.cos(), angle.sin()), -1).flatten(1).float()

    def forward(self, attended, x, out, post_norm, gate_up, down, input_norm, qkv):
        """Returns the residual stream (tokens, hidden) and the rotated heads (tokens, q + 2 kv heads x head_dim)."""
        x = x + F.linear(attended, out)
        gate, up = F.linear(F.rms_norm(x, post_norm.shape, post_norm, EPS), gate_up).chunk(2, 1)
        x = x + F.linear(F.silu(gate) * up, down)
        z = F.linear(F.rms_norm(x, input_norm.shape, input_norm, EPS), qkv).unflatten(1, (-1, self.shape.head_dim))
        qk, v = z.split((self.shape.q_heads + self.shape.kv_heads, self.shape.kv_heads), 1)
        return x, torch.cat((rotate(qk, self.rotary).to(v.dtype), v), 1).flatten(1)

    def by_coda(self, coda):
        """What `coda`, pycoda.functional, is called with: the function and its inputs. Rows of gate and up by turns."""
        s, device = self.shape, self.rotary.device
        frequency = ROPE_BASE ** (-torch.arange(0, s.head_dim, 2, device=device, dtype=torch.float64) / s.head_dim)
        position = torch.arange(self.tokens, device=device) % SEQUENCE
        table = coda.rotary_table(frequency, SEQUENCE)
        heads = coda.Heads(s.q_heads, s.kv_heads, s.kv_heads, s.head_dim, table, position)

        def forward(attended, x, out, post_norm, gate_up, down, input_norm, qkv):
            weights = coda.BlockWeights(out, post_norm, gate_up, down)
            return coda.block(attended, x, weights, coda.QkvWeights(input_norm, qkv), heads, eps=EPS)

        inputs = list(self.inputs)
        inputs[GATE_UP] = coda.interleave(*inputs[GATE_UP].chunk(2))
        return forward, inputs

    @staticmethod
    def as_in_torch(outputs) -> dict[int, torch.Tensor]:
        """CODA's outputs as `reference` has them."""
        named = dict(enumerate(outputs))
        if (gradient := named.get(2 + GATE_UP)) is not None:
            named[2 + GATE_UP] = torch.cat((gradient[0::2], gradient[1::2]))
        return named

    def both(self, forward, inputs=None, gradients=None) -> list[torch.Tensor]:
        """The outputs, and the gradients of all inputs."""
        inputs = [x.detach().requires_grad_() for x in (inputs or self.inputs)]
        outputs = forward(*inputs)
        gradients = torch.autograd.grad(outputs, inputs, gradients or self.gradients)
        return [*(x.detach() for x in outputs), *gradients]

    def reference(self) -> list[torch.Tensor]:
        """The same in fp32."""
        return self.both(self.forward, [x.float() for x in self.inputs], [x.float() for x in self.gradients])

    def products(self, backward: bool):
        """A function that runs the layer's bare products: 4 forward; backward 4 for the inputs and 4 for the weights."""
        attended, x, out, _, gate_up, down, _, qkv = self.inputs
        wide = torch.randn_like(attended.new_empty(self.tokens, 2 * self.shape.ffn))
        y, dqkv = wide[:, : self.shape.ffn].contiguous(), self.gradients[1]
        pairs = [(attended, out.t()), (x, gate_up.t()), (y, down.t()), (x, qkv.t())]
        if backward:
            for dy, inner, weight in ((dqkv, x, qkv), (x, y, down), (wide, x, gate_up), (x, attended, out)):
                pairs += [(dy, weight), (dy.t(), inner)]
        # All write to one place.
        space = attended.new_empty(max(a.shape[0] * b.shape[1] for a, b in pairs))
        pairs = [(a, b, space[: a.shape[0] * b.shape[1]].view(a.shape[0], -1)) for a, b in pairs]

        def run() -> None:
            for a, b, to in pairs:
                torch.mm(a, b, out=to)

        return run
