"""Small models of text: each predicts, at every place of a sequence, what follows."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

HEAD = 16
"""Width of a head of attention, where it divides the model's."""


class Lstm(nn.Module):
    """One or more LSTM layers over embedded symbols (Hochreiter and Schmidhuber 1997).

    Parameters
    ----------
    symbols : int
        Size of the alphabet.
    widths : sequence of int
        Of each layer; the embedding is as wide as the first.
    """

    def __init__(self, symbols: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, widths[0])
        fed = [widths[0], *widths[:-1]]
        pairs = zip(fed, widths, strict=True)
        self.layers = nn.ModuleList(nn.LSTM(a, b, batch_first=True) for a, b in pairs)
        self.output = nn.Linear(widths[-1], symbols)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return the scores of what follows each symbol: (n, length) -> (n, length, symbols)."""
        state = self.embedding(symbols)
        for layer in self.layers:
            state, _ = layer(state)
        scores: torch.Tensor = self.output(state)
        return scores


class Transformer(nn.Module):
    """Blocks of causal attention and a ReLU layer, normalised first (Vaswani et al. 2017).

    Every trained parameter is of an ``nn.Linear`` that is called once: the embedding is one, over
    one-hot symbols, normalisation has no scale of its own and places are sines. So the gradients of
    single examples come layer by layer, and differential privacy costs little more than training.

    Parameters
    ----------
    symbols : int
        Size of the alphabet.
    width : int
        Of every block.
    blocks : int
        How many.
    """

    def __init__(self, symbols: int, width: int, blocks: int) -> None:
        super().__init__()
        self.symbols = symbols
        self.embedding = nn.Linear(symbols, width, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.5)  # beside sines of size 1
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.output = nn.Linear(width, symbols)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return the scores of what follows each symbol: (n, length) -> (n, length, symbols)."""
        weight = self.embedding.weight
        state = self.embedding(functional.one_hot(symbols, self.symbols).to(weight.dtype))
        state = state + sines(symbols.shape[1], state.shape[2]).to(weight)
        for block in self.blocks:
            state = block(state)
        scores: torch.Tensor = self.output(_normalised(state))
        return scores


class Block(nn.Module):
    """Attention to what came before, then a layer of twice the width; each adds to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD if width % HEAD == 0 else 1
        self.asked = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Return the next state, shape (n, length, width)."""
        n, length, width = state.shape
        parts = self.asked(_normalised(state)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        state = state + self.attended(attended.transpose(1, 2).reshape(n, length, width))
        after: torch.Tensor = state + self.narrow(self.wide(_normalised(state)).relu())
        return after


def sines(length: int, width: int) -> torch.Tensor:
    """Encode the places of a sequence as sines and cosines.

    Source: Vaswani et al. 2017, section 3.5.

    Parameters
    ----------
    length : int
        Places of a sequence.
    width : int
        Coordinates of a place.

    Returns
    -------
    torch.Tensor
        Shape (length, width).
    """
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]


def _normalised(state: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(state, state.shape[-1:])
