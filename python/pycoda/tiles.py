"""How many tiles the partial results of the functions in ops.py have, on the device of their tensors."""

import torch

import pycoda._library  # noqa: F401, which has the operators

# How wide and high tiles are, asked for once: torch.compile takes no operator that returns a number.
_LARGE = 2**32  # a multiple of all of them
_TILE_N = {backend: _LARGE // torch.ops.coda.tiles_n(_LARGE, backend) for backend in ("cpu", "sm90")}
_TILE_M = {backend: _LARGE // torch.ops.coda.tiles_m(_LARGE, backend) for backend in ("cpu", "sm90")}


def _backend(device: torch.device | str) -> str:
    return "sm90" if torch.device(device).type == "cuda" else "cpu"


def _tiles(size: int, tile: int) -> int:
    return (size + tile - 1) // tile


def width(device: torch.device | str) -> int:
    """Columns of a tile; the last one of a matrix may have fewer."""
    return _TILE_N[_backend(device)]


def height(device: torch.device | str) -> int:
    """Rows of a tile; the last one of a matrix may have fewer."""
    return _TILE_M[_backend(device)]


def tiles_n(n: int, device: torch.device | str) -> int:
    """Column blocks of a partial result over n columns."""
    return _tiles(n, _TILE_N[_backend(device)])


def tiles_m(m: int, device: torch.device | str) -> int:
    """Row blocks of a partial result over m rows."""
    return _tiles(m, _TILE_M[_backend(device)])


def head_tiles_n(n: int, head_dim: int, device: torch.device | str) -> int:
    """Column blocks of those of qknorm_rope_backward, which are whole heads: as many as fit, one at least."""
    if head_dim < 1:
        raise RuntimeError(f"head_tiles_n: head_dim: expected at least 1 column, got {head_dim}")
    return _tiles(n, max(_TILE_N[_backend(device)] // head_dim, 1) * head_dim)
