"""Loads the operators of CODA into PyTorch."""

import os
import sys
from pathlib import Path

import torch
from torch.autograd import forward_ad
from torch.utils import checkpoint

OLDEST = (2, 10)  # of PyTorch; cmake/CodaTorch.cmake builds for it


def path() -> Path:
    """Of the library: beside this file or, of an editable install, in another folder of the package."""
    if "CODA_TORCH_LIBRARY" in os.environ:
        return Path(os.environ["CODA_TORCH_LIBRARY"])
    paths = [Path(folder, "libcoda_torch.so") for folder in sys.modules[__package__].__path__]
    return next((path for path in paths if path.exists()), paths[0])


def load() -> None:
    found = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if found < OLDEST:
        raise ImportError(f"pycoda: expected PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, got {torch.__version__}")
    library = path()
    if not library.exists():
        raise ImportError(
            f"pycoda: expected the library {library}, got no such file; `pip install --no-build-isolation .` builds it"
        )
    torch.ops.load_library(library)


def _name(operator: torch._ops.OpOverload) -> str:
    return operator.name().removeprefix("coda::")


def _refuse_tangents(operator: torch._ops.OpOverload, tensors: list[torch.Tensor]) -> None:
    """What PyTorch's own operators with an `out` do: the results would have none, which counts as a derivative of 0."""
    for tensor in tensors:
        if forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(
                f"{_name(operator)}: expected tensors without a tangent, since there are no forward-mode derivatives; "
                "got one that has a tangent"
            )


def _refuse_meta(operator: torch._ops.OpOverload, arguments: tuple) -> None:
    """A tensor without memory among others: PyTorch would run what stands for the operator while it is traced, which
    computes nothing."""
    names = [argument.name for argument in operator._schema.arguments]
    given = [(name, tensor) for name, tensor in zip(names, arguments, strict=True) if isinstance(tensor, torch.Tensor)]
    first, leader = given[0]
    for name, tensor in given:
        if (tensor.device.type == "meta") != (leader.device.type == "meta"):
            raise RuntimeError(
                f"{_name(operator)}: {name}: expected a tensor on {leader.device} as {first}, got one on {tensor.device}"
            )


def _refuse_inference_tensors(operator: torch._ops.OpOverload, results: list[torch.Tensor]) -> None:
    """What PyTorch's own operators do, since nothing counts how often such a tensor is written."""
    for tensor in results:
        if tensor.is_inference() and not torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{_name(operator)}: expected results to be normal tensors, or torch.inference_mode(), got one that was "
                "made in inference mode"
            )


def call(operator: torch._ops.OpOverload, arguments: tuple, written: tuple[torch.Tensor | None, ...]) -> None:
    """Runs an operator, and keeps autograd's books as PyTorch's own operators with an `out` do."""
    given = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    for tensor in given:
        if tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{_name(operator)}: expected tensors that require no gradient, or torch.no_grad(), since autograd "
                "does not see this call; got one that requires a gradient"
            )
        if tensor.is_meta:
            _refuse_meta(operator, arguments)
    if forward_ad._current_level >= 0:
        _refuse_tangents(operator, given)
    results = [tensor for tensor in written if isinstance(tensor, torch.Tensor)]
    if not torch.compiler.is_compiling():  # where that cannot be asked
        _refuse_inference_tensors(operator, results)
    operator(*arguments)
    try:
        torch.autograd.graph.increment_version(results)
    except RuntimeError:  # those made in inference mode have no version
        torch.autograd.graph.increment_version([tensor for tensor in results if not tensor.is_inference()])


def complete(names: tuple[str, ...]) -> None:
    """Operators return nothing: all that torch.compile has to know of one is which arguments it writes, and that its
    schema says. A selective checkpoint, which keeps what operators return, has to run them all again."""
    for name in names:
        torch.library.register_fake(f"coda::{name}", lambda *args, **kwargs: None)
        getattr(checkpoint, "SAC_IGNORED_OPS", set()).add(getattr(torch.ops.coda, name).default)


load()
