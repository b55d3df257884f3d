"""Checkpoints and logits against the real `transformers`: its library loads ours, and we load its."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

CODA = os.environ["CODA_CLI_PATH"]


def coda(*arguments):
    command = [CODA, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def our_logits(folder, ids, dtype="fp32"):
    """(tokens, vocab) of every position of the prompt."""
    out = Path(folder) / "logits.st"
    coda(
        "generate",
        folder,
        "--ids",
        ",".join(map(str, ids)),
        "--tokens",
        0,
        "--json",
        "--dtype",
        dtype,
        "--logits",
        out,
    )
    return load_file(out)["logits"].float()


def their_logits(folder, ids, dtype=torch.float32):
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            raise AssertionError(f"{problem}: expected none, got {report[problem]}")
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float()


def tokens(vocab, count):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, vocab, (count,), generator=generator).tolist()


class Transformers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def expect_equal(self, got, expected, bound):
        self.assertEqual(got.shape, expected.shape)
        scale = expected.abs().max().item()
        error = (got - expected).abs().max().item() / scale
        self.assertGreater(expected.std().item(), 0.1)  # logits that say something
        self.assertTrue(error <= bound, f"expected a relative difference up to {bound}, got {error}")
        print(f"{self.id().split('.')[-1]}: largest logit {scale:.3f}, relative difference {error:.2e}")

    def test_they_load_what_we_trained(self):
        text = self.folder / "text.txt"
        text.write_text(" ".join(f"verse {i * i % 89} of chapter {i % 7}." for i in range(2000)))
        for name, flags, architecture in (
            ("llama", [], "LlamaForCausalLM"),
            ("llama_tied", ["--tied"], "LlamaForCausalLM"),
            ("qwen3", ["--qk-norm"], "Qwen3ForCausalLM"),
            ("qwen3_tied", ["--qk-norm", "--tied"], "Qwen3ForCausalLM"),
        ):
            with self.subTest(name):
                out = self.folder / name
                shape = "--layers 2 --hidden 48 --heads 6 --kv-heads 2 --head-dim 10 --ffn 80 --batch 4 --seq 64"
                coda(
                    *[
                        "train",
                        "--data",
                        text,
                        "--out",
                        out,
                        "--steps",
                        40,
                        "--lr",
                        1e-2,
                        "--dtype",
                        "fp32",
                        "--quiet",
                    ],
                    *shape.split(),
                    *flags,
                )
                ids = tokens(256, 50)
                self.assertEqual(
                    AutoModelForCausalLM.from_pretrained(out).config.architectures,
                    [architecture],
                )
                self.expect_equal(our_logits(out, ids), their_logits(out, ids), 1e-4)

    def their_model(self, config, dtype, **save):
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
        kind = [
            config.model_type,
            "tied" if config.tie_word_embeddings else "separate",
            str(dtype)[6:],
            *save,
        ]
        folder = self.folder / "_".join(kind)
        model.to(dtype).save_pretrained(folder, **save)
        return folder

    def configs(self):
        common = dict(
            vocab_size=301,
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=3,
            head_dim=12,
            max_position_embeddings=128,
        )
        for tied in (False, True):
            yield LlamaConfig(
                rms_norm_eps=1e-5,
                rope_theta=500000.0,
                tie_word_embeddings=tied,
                **common,
            )
            yield Qwen3Config(
                rms_norm_eps=1e-6,
                rope_theta=1000000.0,
                tie_word_embeddings=tied,
                **common,
            )

    def test_we_load_what_they_wrote(self):
        for config in self.configs():
            with self.subTest(config.model_type, tied=config.tie_word_embeddings):
                folder, ids = self.their_model(config, torch.float32), tokens(301, 60)
                self.expect_equal(our_logits(folder, ids), their_logits(folder, ids), 1e-4)

    def test_we_load_models_that_scale_their_angles(self):
        llama3 = dict(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
        for scaling in (
            dict(rope_type="linear", factor=4.0),
            dict(rope_type="llama3", factor=4.0, **llama3),
            dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
            dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=0.5, truncate=False, attention_factor=1.2),
        ):
            for config in list(self.configs())[:2]:
                with self.subTest(config.model_type, **scaling):
                    config.rope_scaling = scaling
                    folder, ids = self.their_model(config, torch.float32), tokens(301, 120)
                    expected = their_logits(folder, ids)
                    self.expect_equal(our_logits(folder, ids), expected, 1e-4)
                    path = folder / "config.json"
                    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": None}))
                    plain = our_logits(folder, ids)
                    self.assertGreater((plain - expected).abs().max(), 0.1 * expected.std())  # it matters

    def test_we_load_shards(self):
        config, ids = next(self.configs()), tokens(301, 60)
        folder = self.their_model(config, torch.float32, max_shard_size="60KB")
        self.assertTrue((folder / "model.safetensors.index.json").exists())
        self.expect_equal(our_logits(folder, ids), their_logits(folder, ids), 1e-4)

    def test_bf16_checkpoints(self):
        for config in self.configs():
            with self.subTest(config.model_type, tied=config.tie_word_embeddings):
                folder, ids = self.their_model(config, torch.bfloat16), tokens(301, 60)
                expected = their_logits(folder, ids)  # in fp32, of the same bf16 weights
                self.expect_equal(our_logits(folder, ids), expected, 1e-4)
                self.expect_equal(our_logits(folder, ids, "bf16"), expected, 3e-2)


if __name__ == "__main__":
    unittest.main()
