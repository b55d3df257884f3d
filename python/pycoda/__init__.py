"""CODA for PyTorch: Transformers at the speed of their matrix products, on Hopper GPUs and on the CPU.

functional   the layers between two attentions and the loss, differentiated by autograd
Llama        a model made of them, whose weights come from and go to Hugging Face's `transformers`
ops          all checked calls of the library that compute, one function each
tiles        how large the partial results are that some of them write
paper        the kernels of the paper's own code, by its names
"""

from pycoda import functional, ops, paper, tiles
from pycoda.functional import BlockWeights, HeadWeights, Heads, QkvWeights
from pycoda.llama import Llama, LlamaConfig

__all__ = [
    "BlockWeights",
    "HeadWeights",
    "Heads",
    "Llama",
    "LlamaConfig",
    "QkvWeights",
    "functional",
    "ops",
    "paper",
    "tiles",
]
