#!/usr/bin/env python3
"""pycoda.Llama against the models of `transformers` whose weights it takes: logits, loss, gradients, and back."""

import contextlib
import copy
import functools
import io
import unittest

import torch
import torch.nn.functional as F
from pycoda import Llama, LlamaConfig
from pycoda.llama import query_key_value
from torch._functorch.aot_autograd import aot_function
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from transformers import (
    LlamaConfig as TheirLlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

# Their RMSNorm and rotary angles are fp32 whatever the model's dtype.
FP32_INSIDE = 2e-6
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "attention_factor": 1.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
}


def their_model(kind, config, **options):
    torch.manual_seed(3)
    sizes = {
        "vocab_size": 101,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    model = kind(config(**(sizes | options))).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def relative(got, expected):
    return ((got - expected).abs().max() / expected.abs().max()).item()


class Model(unittest.TestCase):
    def models(self):
        yield their_model(LlamaForCausalLM, TheirLlamaConfig)
        yield their_model(LlamaForCausalLM, TheirLlamaConfig, tie_word_embeddings=True, rope_theta=500.0, head_dim=10)
        yield their_model(LlamaForCausalLM, TheirLlamaConfig, rope_scaling=LLAMA3, num_hidden_layers=1)
        yield their_model(LlamaForCausalLM, TheirLlamaConfig, rope_scaling=YARN, num_hidden_layers=2)
        yield their_model(Qwen3ForCausalLM, Qwen3Config, head_dim=10, rms_norm_eps=0.03)
        yield their_model(Qwen3ForCausalLM, Qwen3Config, head_dim=10, rope_scaling=YARN, num_hidden_layers=2)
        yield their_model(Qwen3ForCausalLM, Qwen3Config, tie_word_embeddings=True, num_key_value_heads=6)

    def test_logits_loss_and_gradients_are_those_of_transformers(self):
        for theirs in self.models():
            with self.subTest(theirs.config.model_type):
                ours = Llama.from_transformers(theirs)
                token, target = torch.randint(0, 101, (3, 20)), torch.randint(0, 101, (3, 20))
                target[0, :4] = -100
                logits = theirs(token).logits
                self.assertLess(relative(ours.logits(token), logits.detach()), FP32_INSIDE)
                self.assertFalse(ours(token).requires_grad)
                loss = ours(token, target)
                expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
                self.assertLess(abs(loss.item() - expected.item()), FP32_INSIDE)
                loss.backward()
                expected.backward()
                # Gradients have the layout of the weights, so they go back the same way.
                gradients = type(theirs)(theirs.config).double()
                for parameter in ours.parameters():
                    parameter.data = parameter.grad
                ours.copy_to(gradients)
                for (name, got), (_, wanted) in zip(
                    gradients.named_parameters(), theirs.named_parameters(), strict=True
                ):
                    self.assertLess(relative(got, wanted.grad), 10 * FP32_INSIDE, name)

    def test_angles_of_a_base(self):
        config = LlamaConfig(vocabulary=5, hidden=8, ffn=8, layers=1, q_heads=1, kv_heads=1, head_dim=8, theta=16.0)
        self.assertEqual(config.inverse_frequency, (1.0, 0.5, 0.25, 0.125))
        config = LlamaConfig(vocabulary=5, hidden=8, ffn=8, layers=1, q_heads=1, kv_heads=1, head_dim=8)
        for found, expected in zip(config.inverse_frequency, (1.0, 0.1, 0.01, 0.001), strict=True):  # of 10000
            self.assertAlmostEqual(found, expected, delta=1e-15)

    def test_weights_there_and_back_are_the_same(self):
        for theirs in self.models():
            other = type(theirs)(theirs.config).double()
            Llama.from_transformers(theirs).copy_to(other)
            for (name, got), (_, wanted) in zip(other.named_parameters(), theirs.named_parameters(), strict=True):
                self.assertTrue(torch.equal(got, wanted), name)

    def test_what_it_lacks_is_refused_by_name(self):
        sliding = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
        cases = [
            (their_model(Qwen3ForCausalLM, Qwen3Config, **sliding), "expected use_sliding_window False, got True"),
            (their_model(MistralForCausalLM, MistralConfig), "expected a llama or qwen3, got a mistral"),
            (their_model(LlamaForCausalLM, TheirLlamaConfig, attention_bias=True), "expected attention_bias False"),
            (their_model(LlamaForCausalLM, TheirLlamaConfig, mlp_bias=True), "expected mlp_bias False"),
            (their_model(LlamaForCausalLM, TheirLlamaConfig, hidden_act="gelu"), "expected hidden_act silu, got gelu"),
            (their_model(LlamaForCausalLM, TheirLlamaConfig, attention_dropout=0.5), "expected attention_dropout 0.0"),
            (their_model(LlamaForCausalLM, TheirLlamaConfig, rope_scaling=LONGROPE), "expected angles .* got longrope"),
        ]
        for theirs, message in cases:
            with self.assertRaisesRegex(ValueError, message):
                Llama.from_transformers(theirs)
        for name, kind in (
            ("model.layers.1.self_attn.q_proj", torch.nn.Linear),
            ("lm_head", torch.nn.Linear),
            ("model.embed_tokens", torch.nn.Embedding),
        ):
            adapted = their_model(LlamaForCausalLM, TheirLlamaConfig)
            adapted.get_submodule(name).__class__ = type("Adapter", (kind,), {})
            with self.assertRaisesRegex(ValueError, f"expected {name} to be {kind.__name__}, got Adapter"):
                Llama.from_transformers(adapted)
        dynamic = their_model(LlamaForCausalLM, TheirLlamaConfig, rope_scaling={"rope_type": "dynamic", "factor": 4.0})
        expected = Llama.from_transformers(dynamic).config
        dynamic(torch.zeros(1, 100, dtype=torch.int64))  # whose angles it keeps
        self.assertEqual(Llama.from_transformers(dynamic).config, expected)
        with self.assertRaisesRegex(ValueError, "positions: expected at most 64 with dynamic angles, got 65"):
            Llama.from_transformers(dynamic, positions=65)
        tied, untied = (their_model(LlamaForCausalLM, TheirLlamaConfig, tie_word_embeddings=t) for t in (True, False))
        normed = their_model(Qwen3ForCausalLM, Qwen3Config, head_dim=8)
        for ours, theirs, message in (
            (tied, untied, "a head that is tied"),
            (untied, tied, "a head that is not tied"),
            (untied, normed, "one without QK-norm"),
            (normed, untied, "one with QK-norm"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                Llama.from_transformers(ours).copy_to(theirs)

    def test_a_bias_that_the_config_has_not_is_refused(self):
        for name in ("lm_head", "model.layers.1.mlp.up_proj"):  # such as that of a head put in place of theirs
            theirs = their_model(LlamaForCausalLM, TheirLlamaConfig)
            part = theirs.get_submodule(name)
            part.bias = torch.nn.Parameter(torch.ones(part.out_features, dtype=torch.float64))
            with self.assertRaisesRegex(ValueError, f"expected {name} without a bias, got one that has it"):
                Llama.from_transformers(theirs)

    def test_a_copy_to_another_shape_is_refused_and_writes_nothing(self):
        ours = Llama.from_transformers(their_model(LlamaForCausalLM, TheirLlamaConfig))
        for message, options in (
            ("expected layers 3, got 2", {"num_hidden_layers": 2}),
            ("expected vocabulary 101, got 102", {"vocab_size": 102}),
            # Whose weights have the same shapes.
            ("expected q_heads 6, got 12", {"num_attention_heads": 12, "num_key_value_heads": 4}),
            # Which would stay beside our weights.
            ("expected model.layers.0.self_attn.q_proj without a bias", {"attention_bias": True}),
            ("expected model.layers.0.mlp.gate_proj without a bias", {"mlp_bias": True}),
        ):
            theirs = their_model(LlamaForCausalLM, TheirLlamaConfig, **options)
            before = copy.deepcopy(theirs.state_dict())
            with self.assertRaisesRegex(ValueError, f"Llama: model: {message}"):
                ours.copy_to(theirs)
            for name, weight in theirs.state_dict().items():
                self.assertTrue(torch.equal(weight, before[name]), name)

    def test_as_many_positions_as_are_asked_for(self):
        theirs = their_model(LlamaForCausalLM, TheirLlamaConfig)
        for positions, expected in ((None, 64), (9, 9), (100, 100)):
            model = Llama.from_transformers(theirs, positions=positions)
            self.assertEqual(model.config.positions, expected)
            self.assertEqual(model.logits(torch.zeros(1, expected, dtype=torch.int64)).shape, (1, expected, 101))

    def test_layers_that_were_taken_out_stay_out(self):
        theirs = their_model(LlamaForCausalLM, TheirLlamaConfig)
        theirs.model.layers = theirs.model.layers[:2]
        ours = Llama.from_transformers(theirs)
        token = torch.randint(0, 101, (2, 20))
        expected = theirs(token, use_cache=False).logits.detach()
        self.assertLess(relative(ours.logits(token), expected), FP32_INSIDE)

    def test_it_learns(self):
        torch.manual_seed(1)
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=32))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
        token = torch.randint(0, 31, (4, 33))
        first = last = None
        for _ in range(60):
            optimizer.zero_grad(set_to_none=True)
            loss = model(token[:, :-1], token[:, 1:])
            loss.backward()
            optimizer.step()
            first, last = first or loss.item(), loss.item()
        self.assertGreater(first, 3)
        self.assertLess(last, 0.5)

    def test_more_tokens_than_positions_are_refused(self):
        model = Llama(LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=8))
        for batch in (1, 2):
            token = torch.zeros(batch, 9, dtype=torch.int64)
            with self.assertRaisesRegex(ValueError, "token: expected a sequence of at most 8 positions, got 9"):
                model.logits(token)
            with self.assertRaisesRegex(RuntimeError, "block_pre: heads"):
                model(token, position=torch.arange(9).expand(batch, 9))

    def test_a_trace_leaves_no_trace(self):
        token = torch.arange(16).reshape(2, 8)
        for trace in (
            lambda logits: make_fx(logits, tracing_mode="fake", _allow_non_fake_inputs=True)(token),
            lambda logits: torch.func.functionalize(logits)(token),
            lambda logits: aot_function(logits, fw_compiler=lambda graph, _: graph)(token),
        ):
            model = Llama(LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=8))
            expected = copy.deepcopy(model).logits(token)
            with contextlib.suppress(RuntimeError, AssertionError):  # some of which cannot
                trace(lambda t, model=model: model.logits(t))
            self.assertTrue(torch.equal(model.logits(token), expected))

    def test_a_state_dict_is_that_of_the_weights(self):
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16, qk_norm=True, tied=True))
        other = Llama(model.config)
        other.load_state_dict(model.state_dict())
        token = torch.randint(0, 31, (2, 16))
        self.assertTrue(torch.equal(model.logits(token), other.logits(token)))
        self.assertNotIn("head", model.state_dict())

    def test_angles_are_those_of_the_config_whatever_becomes_of_the_model(self):
        scaled = their_model(LlamaForCausalLM, TheirLlamaConfig, rope_scaling=LLAMA3, rope_theta=500.0)
        model = Llama.from_transformers(scaled)
        token = torch.randint(0, 101, (2, 64))
        expected = model.logits(token)
        loaded = Llama(model.config).double()
        loaded.load_state_dict(model.state_dict())
        with torch.device("meta"):
            moved, assigned = Llama(model.config), Llama(model.config)
        moved = moved.to_empty(device="cpu").double()
        moved.load_state_dict(model.state_dict())
        assigned.load_state_dict(model.state_dict(), assign=True)
        rounded = Llama(model.config).to(torch.bfloat16).double()  # before its first call
        rounded.load_state_dict(model.state_dict())
        with torch.device("meta"):
            shaped = Llama(model.config).double()
            shaped.logits(token.to("meta"))  # whose angles have no values
        shaped = shaped.to_empty(device="cpu")
        shaped.load_state_dict(model.state_dict())
        called = Llama(model.config)
        called.logits(token)  # with angles in fp32
        called.double().load_state_dict(model.state_dict())
        for other in (loaded, moved, assigned, rounded, shaped, called):
            self.assertTrue(torch.equal(other.logits(token), expected))

    def test_a_loss_without_gradients(self):
        model, token = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16)), torch.randint(0, 31, (2, 16))
        with torch.no_grad():
            self.assertFalse(model(token, token).requires_grad)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'cap'"):  # which logits have not
            model(token, cap=30.0)

    def test_it_trains_behind_logits_in_inference_mode(self):
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16))
        token = torch.randint(0, 31, (2, 16))
        with torch.inference_mode():
            model.logits(token)
        model(token, token).backward()
        self.assertIsNotNone(model.table.grad)

    def test_autocast_leaves_it_as_it_is(self):
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16))
        token = torch.randint(0, 31, (2, 16))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(token, token)
        loss.backward()
        self.assertEqual((loss.dtype, model.table.grad.dtype), (torch.float32, torch.float32))
        self.assertLess(abs(loss.item() - model(token, token).item()), 1e-3)

    def test_documents_in_one_row_are_what_each_is_alone(self):
        for theirs in self.models():
            lengths, padding = (7, 1, 12), 4
            sizes = (*lengths, padding)
            number = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
            position = torch.cat([torch.arange(n) for n in sizes]).repeat(2, 1)
            mask = (number[:, None] == number) & torch.ones(24, 24, dtype=torch.bool).tril()

            def attention(qkv, config, mask=mask):
                q, k, v = query_key_value(qkv, config)
                grouped = config.q_heads != config.kv_heads
                attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)
                return attended.transpose(1, 2).flatten(2)

            token, target = torch.randint(0, 101, (2, 24)), torch.randint(0, 101, (2, 24))
            target[:, -padding:] = -100
            packed, alone = Llama.from_transformers(theirs), Llama.from_transformers(theirs)
            documents = list(zip(token.split(sizes, 1), target.split(sizes, 1), strict=True))
            with self.subTest(theirs.config.model_type):
                for type_ in (torch.int32, torch.int64):
                    logits = packed.logits(token, position=position.to(type_), attention=attention)
                    expected = torch.cat([alone.logits(t) for t, _ in documents], 1)
                    self.assertLess(relative(logits, expected), 1e-13)
                loss = packed(token, target, position=position, attention=attention)
                loss.backward()
                expected = sum(alone(*d) * d[0].numel() for d in documents[:3]) / (2 * sum(lengths))
                expected.backward()
                self.assertLess(abs(loss.item() - expected.item()), 1e-13)
                for got, wanted in zip(packed.parameters(), alone.parameters(), strict=True):
                    self.assertLess(relative(got.grad, wanted.grad), 1e-12)

    def test_a_model_has_a_layer(self):
        with self.assertRaisesRegex(ValueError, "config: expected at least 1 of layers, got 0"):
            Llama(LlamaConfig(31, 64, 96, 0, 4, 2, 16))

    def test_tokens_that_are_not_a_batch_are_refused(self):
        model = Llama(LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=16))
        with self.assertRaisesRegex(ValueError, r"token: expected a shape \(batch, sequence\), got \(16,\)"):
            model.logits(torch.zeros(16, dtype=torch.int64))
        token = torch.zeros(2, 16, dtype=torch.int64)
        with self.assertRaisesRegex(ValueError, r"position: expected the shape \(2, 16\) of token, got \(16,\)"):
            model(token, token, position=torch.arange(16))
        with self.assertRaisesRegex(ValueError, r"target: expected the shape \(2, 16\) of token, got \(16, 2\)"):
            model(token, token.T)

    def test_another_activation_is_refused(self):
        model, token = Llama(LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=16)), torch.zeros(2, 16, dtype=torch.int64)
        with self.assertRaisesRegex(ValueError, "function: expected none, since it is swiglu, got reglu"):
            model(token, token, function="reglu")

    def assert_trains_alike(self, model, others):
        token, target = torch.randint(0, 31, (2, 16)), torch.randint(0, 31, (2, 16))
        found = []
        for run in (model, *others):
            run.zero_grad(set_to_none=True)
            loss = run(token, target)
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in run.parameters())])
        for other in found[1:]:
            for wanted, got in zip(found[0], other, strict=True):
                self.assertLess(relative(got, wanted), 1e-12)

    def test_compiled_as_one_graph(self):
        torch.manual_seed(1)
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16)).double()
        model.logits(torch.zeros(1, 1, dtype=torch.int64))  # makes the table of angles
        self.assert_trains_alike(model, [torch.compile(model, fullgraph=True, backend="aot_eager")])

    def test_compiled_as_one_graph_for_any_shape_and_number(self):
        torch.manual_seed(1)
        model = Llama(LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=16)).double()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
        for shape, z_loss in (((2, 16), 0.1), ((3, 9), 0.2)):
            token = torch.randint(0, 31, shape)
            loss = compiled(token, token, z_loss=z_loss)
            loss.backward()
            self.assertLess(abs(loss.item() - model(token, token, z_loss=z_loss).item()), 1e-12)

    def test_exported_decomposed_and_saved(self):
        torch.manual_seed(1)
        model = Llama(LlamaConfig(31, 64, 96, 2, 4, 2, 16, positions=16))
        token, other = torch.randint(0, 31, (2, 2, 16))
        for strict in (False, True):
            with torch.no_grad():
                program = torch.export.export(model, (token,), strict=strict).run_decompositions()
            file = io.BytesIO()
            torch.export.save(program, file)
            file.seek(0)
            found = torch.export.load(file).module()(other)
            self.assertLess(relative(found, model.logits(other)), FP32_INSIDE)

    def test_parts_compiled_or_recomputed_one_at_a_time(self):
        torch.manual_seed(1)
        model = Llama(LlamaConfig(31, 64, 96, 3, 4, 2, 16, positions=16)).double()
        compiled, recomputed = copy.deepcopy(model), copy.deepcopy(model)
        for part in compiled.parts:
            part.compile(fullgraph=True, backend="aot_eager")
        for part in recomputed.between:
            part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
        self.assert_trains_alike(model, [compiled, recomputed])


if __name__ == "__main__":
    unittest.main()
