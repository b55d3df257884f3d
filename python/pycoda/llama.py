"""A LLaMA or Qwen3 for training, whose layers are calls of CODA around PyTorch's attention."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pycoda.functional import (
    BlockWeights,
    HeadWeights,
    Heads,
    QkvWeights,
    block,
    block_post,
    block_post_logits,
    block_pre,
    halve_rows,
    interleave,
    pair_rows,
    rotary_table,
)


@dataclass(frozen=True)
class LlamaConfig:
    vocabulary: int
    hidden: int
    ffn: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    positions: int = 4096
    theta: float = 10000.0
    eps: float = 1e-5
    qk_norm: bool = False
    tied: bool = False  # the head is the embedding's table
    # The angle of each pair from one position to the next, head_dim / 2 numbers; None: theta^(-2 i / head_dim).
    frequencies: tuple[float, ...] | None = None
    rotary_scale: float = 1.0  # of what is rotated, as YaRN has it

    @property
    def inverse_frequency(self) -> tuple[float, ...]:
        if self.frequencies is not None:
            return self.frequencies
        return tuple(self.theta ** (-2 * i / self.head_dim) for i in range(self.head_dim // 2))

    @property
    def qkv_width(self) -> int:
        return (self.q_heads + 2 * self.kv_heads) * self.head_dim


# Modules reach from attention to attention, as what is computed in one go does: over the end of a layer and the begin
# of the next. So each has all weights that it needs when it is called, as fully_shard of one at a time wants it.


def add_qkv_weights(module: nn.Module, c: LlamaConfig) -> None:
    module.input_norm = nn.Parameter(torch.ones(c.hidden))
    module.qkv = nn.Parameter(torch.empty(c.qkv_width, c.hidden))
    module.q_norm = nn.Parameter(torch.ones(c.head_dim)) if c.qk_norm else None
    module.k_norm = nn.Parameter(torch.ones(c.head_dim)) if c.qk_norm else None


def qkv_weights(module: nn.Module) -> QkvWeights:
    return QkvWeights(module.input_norm, module.qkv, module.q_norm, module.k_norm)


def add_block_weights(module: nn.Module, c: LlamaConfig) -> None:
    module.out = nn.Parameter(torch.empty(c.hidden, c.q_heads * c.head_dim))
    module.post_norm = nn.Parameter(torch.ones(c.hidden))
    module.gate_up = nn.Parameter(torch.empty(2 * c.ffn, c.hidden))
    module.down = nn.Parameter(torch.empty(c.hidden, c.ffn))


def block_weights(module: nn.Module) -> BlockWeights:
    return BlockWeights(module.out, module.post_norm, module.gate_up, module.down)


class Front(nn.Module):
    """What lies ahead of the first attention."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.eps = c.eps
        add_qkv_weights(self, c)

    def forward(self, token: Tensor, table: Tensor, heads: Heads) -> tuple[Tensor, Tensor]:
        return block_pre(token, table, qkv_weights(self), heads, eps=self.eps, head_eps=self.eps)


class Between(nn.Module):
    """What lies between two attentions."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.eps = c.eps
        add_block_weights(self, c)
        add_qkv_weights(self, c)

    def forward(self, attended: Tensor, x: Tensor, heads: Heads) -> tuple[Tensor, Tensor]:
        return block(attended, x, block_weights(self), qkv_weights(self), heads, eps=self.eps, head_eps=self.eps)


class Back(nn.Module):
    """What lies behind the last attention: the loss or, without a target, the logits."""

    def __init__(self, c: LlamaConfig) -> None:
        super().__init__()
        self.eps = c.eps
        add_block_weights(self, c)

    def forward(self, attended: Tensor, x: Tensor, head: HeadWeights, target: Tensor | None, **options) -> Tensor:
        if target is None:
            return block_post_logits(attended, x, block_weights(self), head, eps=self.eps, **options)
        return block_post(attended, x, block_weights(self), head, target, eps=self.eps, **options)


def query_key_value(qkv: Tensor, c: LlamaConfig) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, q_heads, sequence, head_dim) and twice (batch, kv_heads, sequence, head_dim), parts of qkv (batch,
    sequence, W): normed, rotated, and as torch.nn.functional.scaled_dot_product_attention takes them."""
    widths = (c.q_heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim)
    q, k, v = (part.unflatten(-1, (-1, c.head_dim)).transpose(1, 2) for part in qkv.split(widths, -1))
    return q, k, v


def causal_attention(qkv: Tensor, c: LlamaConfig) -> Tensor:
    """(batch, sequence, Q) of qkv (batch, sequence, W): PyTorch's, each token sees itself and those before it."""
    q, k, v = query_key_value(qkv, c)
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c.q_heads != c.kv_heads)
    return attended.transpose(1, 2).flatten(2).to(qkv.dtype)  # autocast has another one for it


Attention = Callable[[Tensor, LlamaConfig], Tensor]  # as causal_attention


# Of models of `transformers`.


def sizes_of(model: nn.Module) -> dict:
    """As LlamaConfig has them."""
    theirs = model.config
    return {
        "vocabulary": theirs.vocab_size,
        "hidden": theirs.hidden_size,
        "ffn": theirs.intermediate_size,
        "layers": len(model.model.layers),  # some may have been taken out
        "q_heads": theirs.num_attention_heads,
        "kv_heads": theirs.num_key_value_heads,
        "head_dim": getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads,
    }


def expect_weights_alone(model: nn.Module) -> None:
    """Refuses a projection or table that is more than its weight."""
    for name, part in model.named_modules():
        if not name.endswith(("_proj", "lm_head", "embed_tokens")):
            continue
        plain = nn.Embedding if name.endswith("embed_tokens") else nn.Linear
        if type(part) is not plain:  # such as an adapter
            raise ValueError(f"Llama: model: expected {name} to be {plain.__name__}, got {type(part).__name__}")
        if getattr(part, "bias", None) is not None:
            raise ValueError(f"Llama: model: expected {name} without a bias, got one that has it")


class Llama(nn.Module):
    """`model(token, target)` is the mean cross-entropy of a batch, `model.logits(token)` its logits. target[b, t] is what
    follows token[b, t]: it is not shifted here, as the labels of `transformers` are.

    Several documents in a row of a batch: `position` (batch, sequence), int32 or int64, begins anew with each, and
    `attention` is one of yours that takes what causal_attention takes, and in which no token sees another document
    (query_key_value, then scaled_dot_product_attention with a mask, FlexAttention, ...). Padding is a document whose
    targets are -100.

    Sharded by FSDP2: `for part in model.parts: fully_shard(part)`, then `fully_shard(model)`. A MixedPrecisionPolicy
    has cast_forward_inputs=False, or it would round the rotary angles.

    What torch.export makes of it can be saved if it was made under torch.no_grad().

    Weights are laid out as the operators want them (functional.pair_rows, functional.interleave); from_transformers and
    copy_to convert.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        if config.layers < 1:
            raise ValueError(f"Llama: config: expected at least 1 of layers, got {config.layers}")
        self.config = config
        self.table = nn.Parameter(torch.empty(config.vocabulary, config.hidden))
        self.front = Front(config)
        self.between = nn.ModuleList(Between(config) for _ in range(config.layers - 1))
        self.back = Back(config)
        self.final_norm = nn.Parameter(torch.ones(config.hidden))
        self.head = None if config.tied else nn.Parameter(torch.empty(config.vocabulary, config.hidden))
        self.rotary = None  # made where the model is when it is first called, in full precision whatever its dtype
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    @property
    def parts(self) -> list[nn.Module]:
        """The modules between attentions. The table, the last norm and the head, which may be the table, are ours."""
        return [self.front, *self.between, self.back]

    @property
    def layers(self) -> list[tuple[QkvWeights, BlockWeights]]:
        """The weights of each layer."""
        parts = self.parts
        return [(qkv_weights(p), block_weights(q)) for p, q in zip(parts[:-1], parts[1:], strict=True)]

    def head_weights(self) -> HeadWeights:
        return HeadWeights(self.final_norm, self.table if self.head is None else self.head)

    def heads(self, token: Tensor, position: Tensor | None = None) -> Heads:
        c = self.config
        if token.dim() != 2:
            raise ValueError(f"Llama: token: expected a shape (batch, sequence), got {tuple(token.shape)}")
        if position is not None and position.shape != token.shape:
            expected, found = tuple(token.shape), tuple(position.shape)
            raise ValueError(f"Llama: position: expected the shape {expected} of token, got {found}")
        batch, sequence = token.shape
        if position is None and sequence > c.positions:
            raise ValueError(f"Llama: token: expected a sequence of at most {c.positions} positions, got {sequence}")
        stat = torch.float64 if self.table.dtype == torch.float64 else torch.float32
        rotary = self.rotary
        if rotary is None or rotary.device != token.device or rotary.dtype != stat:
            with torch.inference_mode(False):  # or no later call could train
                frequency = torch.tensor(c.inverse_frequency, dtype=torch.float64, device=token.device)
                rotary = rotary_table(frequency, c.positions, stat, c.rotary_scale)
            # Not one of somebody who only traces; Dynamo stores what its graph made when that has run.
            dynamo = torch.compiler.is_dynamo_compiling()
            if dynamo or type(rotary) is Tensor and not torch._is_functional_tensor(rotary):
                self.rotary = rotary
        if position is not None:
            position = position.flatten()
        elif batch > 1:
            position = torch.arange(sequence, dtype=torch.int32, device=token.device).repeat(batch)
        return Heads(c.q_heads, c.kv_heads, c.kv_heads, c.head_dim, rotary, position)

    def forward(
        self,
        token: Tensor,
        target: Tensor | None = None,
        *,
        position: Tensor | None = None,
        attention: Attention = causal_attention,
        **options,
    ) -> Tensor:
        """The loss of token and target (batch, sequence); options are those of functional.block_post but for function
        and eps. Without a target: as `logits`."""
        if "function" in options:  # which would be the last layer's alone
            raise ValueError(f"Llama: function: expected none, since it is swiglu, got {options['function']}")
        with torch.set_grad_enabled(torch.is_grad_enabled() and target is not None):
            heads = self.heads(token, position)
            if isinstance(target, Tensor) and target.shape != token.shape:  # or a transposed one would pass
                expected, found = tuple(token.shape), tuple(target.shape)
                raise ValueError(f"Llama: target: expected the shape {expected} of token, got {found}")
            x, qkv = self.front(token, self.table, heads)
            for part in self.between:
                x, qkv = part(attention(qkv, self.config), x, heads)
            return self.back(attention(qkv, self.config), x, self.head_weights(), target, **options)

    def logits(
        self, token: Tensor, *, position: Tensor | None = None, attention: Attention = causal_attention
    ) -> Tensor:
        """(batch, sequence, vocabulary). Not differentiated."""
        return self(token, position=position, attention=attention)

    # ---- weights of Hugging Face's models

    @classmethod
    def from_transformers(cls, model: nn.Module, positions: int | None = None) -> "Llama":
        """A copy of a LlamaForCausalLM or Qwen3ForCausalLM, with its dtype and on its device; for `positions` tokens at
        most, the model's max_position_embeddings if None. ValueError if the model has a part that this one lacks. All
        weights are trained, also those that are frozen there, and the row of a padding token like any other."""
        theirs = model.config
        if theirs.model_type not in ("llama", "qwen3"):
            raise ValueError(f"Llama: model: expected a llama or qwen3, got a {theirs.model_type}")
        rotary = model.model.rotary_emb
        kind = getattr(rotary, "rope_type", "")
        if kind == "longrope":
            raise ValueError("Llama: model: expected angles that do not depend on the text's length, got longrope")
        for name, found, expected in (
            ("hidden_act", theirs.hidden_act, "silu"),
            ("attention_bias", getattr(theirs, "attention_bias", False), False),
            ("mlp_bias", getattr(theirs, "mlp_bias", False), False),
            ("use_sliding_window", getattr(theirs, "use_sliding_window", False), False),
            ("attention_dropout", getattr(theirs, "attention_dropout", 0.0), 0.0),
        ):
            if found != expected:
                raise ValueError(f"Llama: model: expected {name} {expected}, got {found}")
        expect_weights_alone(model)
        most = theirs.max_position_embeddings
        if positions is not None and positions > most and kind == "dynamic":
            raise ValueError(f"Llama: positions: expected at most {most} with dynamic angles, got {positions}")
        # Dynamic ones are now those of the longest text so far.
        frequency = rotary.original_inv_freq if kind == "dynamic" else rotary.inv_freq
        config = LlamaConfig(
            **sizes_of(model),
            positions=positions or most,
            frequencies=tuple(frequency.double().tolist()),  # whatever the kind of scaling
            rotary_scale=float(rotary.attention_scaling),
            eps=theirs.rms_norm_eps,
            qk_norm=theirs.model_type == "qwen3",
            tied=model.lm_head.weight is model.model.embed_tokens.weight,
        )
        with torch.device("meta"):
            ours = cls(config)
        weights = model.model.embed_tokens.weight
        ours = ours.to_empty(device=weights.device).to(weights.dtype)
        with torch.no_grad():
            for mine, its in ours._pairs(model):
                mine.copy_(its)
        return ours

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Copies the weights into a model of `transformers` of the same shape, whose head is tied where ours is, and
        which has QK-norm where ours has; its angles and eps are as it has them. ValueError, and nothing is written, if
        it has another shape or a part that this one lacks."""
        c = self.config
        if (model.lm_head.weight is model.model.embed_tokens.weight) != c.tied:
            raise ValueError(f"Llama: model: expected a head that is {'' if c.tied else 'not '}tied, got another one")
        if hasattr(model.model.layers[0].self_attn, "q_norm") != c.qk_norm:
            raise ValueError(
                f"Llama: model: expected one {'with' if c.qk_norm else 'without'} QK-norm, got another one"
            )
        for name, found in sizes_of(model).items():
            if found != getattr(c, name):
                raise ValueError(f"Llama: model: expected {name} {getattr(c, name)}, got {found}")
        expect_weights_alone(model)
        model.model.embed_tokens.weight.copy_(self.table)
        if self.head is not None:
            model.lm_head.weight.copy_(self.head)
        model.model.norm.weight.copy_(self.final_norm)
        for (qkv_part, block_part), its in zip(self.layers, model.model.layers, strict=True):
            attention, mlp = its.self_attn, its.mlp
            sizes = (c.q_heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim)
            q, k, v = qkv_part.qkv.split(sizes)
            attention.q_proj.weight.copy_(halve_rows(q, c.head_dim))
            attention.k_proj.weight.copy_(halve_rows(k, c.head_dim))
            attention.v_proj.weight.copy_(v)
            attention.o_proj.weight.copy_(block_part.out)
            if c.qk_norm:
                attention.q_norm.weight.copy_(halve_rows(qkv_part.q_norm, c.head_dim))
                attention.k_norm.weight.copy_(halve_rows(qkv_part.k_norm, c.head_dim))
            mlp.gate_proj.weight.copy_(block_part.gate_up[0::2])
            mlp.up_proj.weight.copy_(block_part.gate_up[1::2])
            mlp.down_proj.weight.copy_(block_part.down)
            its.input_layernorm.weight.copy_(qkv_part.input_norm)
            its.post_attention_layernorm.weight.copy_(block_part.post_norm)

    def _pairs(self, model: nn.Module):
        """(a weight of this model, what it is in the layout of this one)."""
        c = self.config
        yield self.table, model.model.embed_tokens.weight
        yield self.final_norm, model.model.norm.weight
        if self.head is not None:
            yield self.head, model.lm_head.weight
        for (qkv_part, block_part), its in zip(self.layers, model.model.layers, strict=True):
            attention, mlp = its.self_attn, its.mlp
            q, k = (pair_rows(part.weight, c.head_dim) for part in (attention.q_proj, attention.k_proj))
            yield qkv_part.qkv, torch.cat((q, k, attention.v_proj.weight))
            if c.qk_norm:
                yield qkv_part.q_norm, pair_rows(attention.q_norm.weight, c.head_dim)
                yield qkv_part.k_norm, pair_rows(attention.k_norm.weight, c.head_dim)
            yield block_part.out, attention.o_proj.weight
            yield block_part.gate_up, interleave(mlp.gate_proj.weight, mlp.up_proj.weight)
            yield block_part.down, mlp.down_proj.weight
            yield qkv_part.input_norm, its.input_layernorm.weight
            yield block_part.post_norm, its.post_attention_layernorm.weight
