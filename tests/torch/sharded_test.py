#!/usr/bin/env python3
"""pycoda.Llama sharded over two processes by FSDP2 against the same model in one."""

import tempfile
import unittest

import torch
import torch.distributed as dist
from pycoda import Llama, LlamaConfig
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

RANKS = 2
MODELS = (
    LlamaConfig(31, 64, 96, 1, 4, 2, 16, positions=16),
    LlamaConfig(31, 64, 96, 3, 4, 2, 16, positions=16, qk_norm=True),
    LlamaConfig(31, 48, 80, 2, 6, 2, 10, positions=16, tied=True),
)


def model_of(config: LlamaConfig, dtype: torch.dtype) -> Llama:
    torch.manual_seed(1)
    return Llama(config).to(dtype)


def sharded(model: Llama, policy: MixedPrecisionPolicy, device: str) -> Llama:
    mesh = init_device_mesh(device, (RANKS,))
    for part in model.parts:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got.double() - expected).abs().max() / expected.abs().max()).item()


def compare(
    rank: int, config: LlamaConfig, dtype: torch.dtype, policy: MixedPrecisionPolicy, device: str, bound: float
) -> None:
    """Each process has a row of two, so that the mean of their gradients is that of both rows."""
    torch.manual_seed(2)
    token, target = torch.randint(0, 31, (RANKS, 16)), torch.randint(0, 31, (RANKS, 16))
    expected, row = model_of(config, torch.float64), slice(rank, rank + 1)
    expected(token, target).backward()
    model = sharded(model_of(config, dtype).to(device), policy, device)
    my_token, my_target = token[row].to(device), target[row].to(device)
    for _ in range(2):  # also with what the first pass left
        model.zero_grad(set_to_none=True)
        model(my_token, my_target).backward()
    for (name, got), wanted in zip(model.named_parameters(), expected.parameters(), strict=True):
        error = relative(got.grad.full_tensor().cpu(), wanted.grad)
        if not error < bound:
            raise AssertionError(f"{config}: {name}: {error}")
    error = relative(model.logits(my_token).cpu(), expected.logits(token[row]))
    if not error < bound:
        raise AssertionError(f"{config}: logits: {error}")


def run(rank: int, meeting: str, device: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "gloo", "cuda": "nccl"}[device]
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    try:
        mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for config in MODELS:
            if device == "cpu":
                compare(rank, config, torch.float64, MixedPrecisionPolicy(), device, 1e-12)
            compare(rank, config, torch.float32, mixed, device, 0.05)
    finally:
        dist.destroy_process_group()


class Sharded(unittest.TestCase):
    def assert_same_as_one_process(self, device: str):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(run, (f"{folder}/meeting", device), RANKS)

    def test_gradients_and_logits_are_those_of_one_process(self):
        self.assert_same_as_one_process("cpu")

    @unittest.skipUnless(torch.cuda.device_count() >= RANKS, f"needs {RANKS} GPUs")
    def test_gradients_and_logits_on_gpus_are_those_of_one_process(self):
        self.assert_same_as_one_process("cuda")


if __name__ == "__main__":
    unittest.main()
