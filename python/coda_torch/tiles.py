"""How many tiles the partial results of the functions in ops.py have, on the device of their tensors."""

import torch

import coda_torch._library  # noqa: F401, which has the operators


def _backend(device: torch.device | str) -> str:
    return "sm90" if torch.device(device).type == "cuda" else "cpu"


def tiles_n(n: int, device: torch.device | str) -> int:
    """Column blocks of a partial result over n columns."""
    return torch.ops.coda.tiles_n(n, _backend(device))


def tiles_m(m: int, device: torch.device | str) -> int:
    """Row blocks of a partial result over m rows."""
    return torch.ops.coda.tiles_m(m, _backend(device))


def head_tiles_n(n: int, head_dim: int, device: torch.device | str) -> int:
    """Column blocks of those of qknorm_rope_backward, which are whole heads."""
    return torch.ops.coda.head_tiles_n(n, head_dim, _backend(device))
