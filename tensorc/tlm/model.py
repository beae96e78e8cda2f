"""The network: GPT-2 over tokens that are sets of pieces, in plain PyTorch.

The architecture is that of Radford et al. (2019) as nanoGPT has it: layer norm before attention and
before the two-layer perceptron, GELU, learned positions, and one table for what is read and for
what is written. Three things differ. A token is the sum of what its pieces mean, so the score of an
option is the sum of the scores of its pieces, contexts among them. Positions of an answer are
counted from its own beginning, whatever the prompt's length. And a second head reads, at the end of
an answer, how slow its program is by the best of its task, log2.

Shapes: B sequences, T tokens, W pieces of a token (0 fills up), C channels, O options.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from tensorc.tlm.network import Floats, Mask, Numbers
from tensorc.tlm.network import Shape as Shape

ROOM = 16
"""Tokens that a full cache grows by."""

Masks: TypeAlias = Tensor | Sequence[Tensor] | None
"""Who may look at whom: one mask for all tokens, or one for each part that they fall into."""


class Cache:
    """The keys and values of tokens that were read, and room for more: `stored` is (layers, 2, B,
    heads, room, channels of a head), of which `length` tokens are filled."""

    def __init__(self, stored: Tensor, length: int = 0) -> None:
        self.stored, self.length = stored, length

    def extended(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of new tokens, (B, heads, T, channels); all that are known."""
        end = self.length + keys.shape[2]
        own = self.stored[layer]
        own[0, :, :, self.length : end] = keys
        own[1, :, :, self.length : end] = values
        return own[0, :, :, :end], own[1, :, :, :end]

    def repeated(self, rows: int, room: int) -> Cache:
        """For so many sequences that begin as the one of this cache, and room for more tokens."""
        layers, two, _, heads, _, channels = self.stored.shape
        stored = self.stored.new_empty(layers, two, rows, heads, self.length + room, channels)
        stored[..., : self.length, :] = self.stored[..., : self.length, :]
        return Cache(stored, self.length)

    def roomier(self, room: int) -> Cache:
        """The same with room for more tokens than it has."""
        more = self.stored.new_empty((*self.stored.shape[:4], room, self.stored.shape[5]))
        return Cache(torch.cat([self.stored, more], 4), self.length)


class Attention(nn.Module):  # type: ignore[misc]
    """Causal self-attention: each token looks at those that the mask shows it."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.heads, self.layer, self.dropout = shape.heads, layer, shape.dropout
        self.inner = nn.Linear(shape.width, 3 * shape.width)
        self.outer = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor, mask: Masks, cache: Cache | None) -> Tensor:
        rows, tokens, width = x.shape
        split = self.inner(x).view(rows, tokens, 3, self.heads, width // self.heads)
        if mask is None or isinstance(mask, Tensor):
            mixed = self._mixed(split, mask, cache)
        else:
            parts = split.split([len(own) for own in mask], 1)
            pairs = zip(parts, mask, strict=True)
            mixed = torch.cat([self._mixed(part, own, None) for part, own in pairs], 1)
        return self.outer(mixed.reshape(rows, tokens, width))

    def _mixed(self, split: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """Values by the attention of their keys, (B, T, heads, channels), of queries, keys and
        values, (B, T, 3, heads, channels)."""
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = cache.extended(self.layer, keys, values)
        dropout = self.dropout if self.training else 0.0
        mixed: Tensor = functional.scaled_dot_product_attention(
            queries, keys, values, mask, dropout
        )
        return mixed.transpose(1, 2)


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        width = shape.width
        self.norm1, self.attention = nn.LayerNorm(width), Attention(shape, layer)
        self.norm2, self.dropout = nn.LayerNorm(width), nn.Dropout(shape.dropout)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, mask: Masks, cache: Cache | None) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), mask, cache))
        return x + self.dropout(self.perceptron(self.norm2(x)))


class Model(nn.Module):  # type: ignore[misc]
    """The network with random weights: those of GPT-2, normal with a deviation of 0.02, and in the
    last layer of each residual branch less by the root of their number."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self.pieces = nn.Embedding(shape.pieces, width, padding_idx=0)
        self.positions = nn.Embedding(shape.prompt + shape.answer, width)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = nn.LayerNorm(width)
        self.slowness = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        for name, weight in self.named_parameters():
            last = name.endswith(("attention.outer.weight", "perceptron.2.weight"))
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * shape.layers) if last else 1.0))
            elif "norm" not in name:
                nn.init.zeros_(weight)
        with torch.no_grad():
            self.pieces.weight[0].zero_()

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Masks = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What the network makes of tokens, (B, T, C).

        Args:
            tokens: the numbers of their pieces, (B, T, W).
            positions: of each token, (B, T) or (T,): those of an answer begin at `shape.prompt`.
            mask: True where a token (second to last) may look at another one (last), which are
                those of the cache and then those given. Without one, each looks at all. Several
                are of parts of the tokens, in turn, which see nothing of each other nor of a cache.
            cache: what was read before; it takes in what is read now.
        """
        rows, count, _ = tokens.shape
        tokens = self._seen(tokens)
        x = functional.embedding_bag(
            tokens.flatten(0, 1), self.pieces.weight, mode="sum", padding_idx=0
        )
        x = self.dropout(x.view(rows, count, -1) + self.positions(positions))
        for block in self.blocks:
            x = block(x, mask, cache)
        if cache is not None:
            cache.length += count
        return self.norm(x)

    def logits(self, hidden: Tensor, options: Tensor) -> Tensor:
        """The scores of options, (N, O), before they are normalised; minus infinity for those of no
        piece at all, which fill up.

        Args:
            hidden: of the tokens before the decisions, (N, C).
            options: the numbers of the options' pieces, (N, O, W).
        """
        scores = functional.linear(hidden, self.pieces.weight)
        seen = self._seen(options)
        found = scores.gather(1, seen.flatten(1)).view(options.shape).sum(-1)
        return found.masked_fill(options[..., 0] == 0, -math.inf)

    def logits_of_all(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """As `logits`, (N, O), of the same options everywhere, (O, W). Scores of options that are
        filled up to one width compare with each other."""
        table = functional.embedding_bag(self._seen(tokens), self.pieces.weight, mode="sum")
        found: Tensor = functional.linear(hidden, table)
        return found

    def _seen(self, tokens: Tensor) -> Tensor:
        """Tokens without the pieces that are not read."""
        blind = self.shape.blind
        return tokens.masked_fill(tokens >= blind, 0) if blind else tokens

    def slow(self, hidden: Tensor) -> Tensor:
        """log2 of the time by that of the best program of the task, (N,), expected at the last
        tokens of answers, (N, C)."""
        return self.slowness(hidden).squeeze(-1)

    def cache(self, room: int) -> Cache:
        """An empty one for a sequence of at most so many tokens."""
        shape = self.shape
        size = (shape.layers, 2, 1, shape.heads, room, shape.width // shape.heads)
        return Cache(self.pieces.weight.new_zeros(size))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """As `Network.alone`; no dropout from then on."""
        self.eval()
        with torch.inference_mode(), one_thread():
            yield

    def reader(self, room: int) -> ModelReader:
        """As `Network.reader`."""
        return ModelReader(self, self.cache(room))

    def scores(self, hidden: Floats, options: Numbers) -> Floats:
        """As `Network.scores`."""
        found: Floats = self.logits(torch.from_numpy(hidden), torch.from_numpy(options)).numpy()
        return found

    def expected(self, hidden: Floats) -> Floats:
        """As `Network.expected`."""
        found: Floats = self.slow(torch.from_numpy(hidden)).numpy()
        return found

    @property
    def parameters_count(self) -> int:
        return sum(weight.numel() for weight in self.parameters())


class ModelReader:
    """A model that reads, see `Reader`."""

    def __init__(self, model: Model, cache: Cache) -> None:
        self.model, self.cache = model, cache

    @property
    def length(self) -> int:
        return self.cache.length

    def read(self, tokens: Numbers, positions: Numbers, mask: Mask) -> Floats:
        given = (torch.from_numpy(array) for array in (tokens[None], positions, mask))
        hidden: Floats = self.model(*given, self.cache)[0].numpy()
        return hidden

    def step(self, tokens: Numbers, position: int) -> Floats:
        if self.cache.length == self.cache.stored.shape[4]:
            self.cache = self.cache.roomier(ROOM)
        given = torch.from_numpy(tokens[:, None])
        hidden: Floats = self.model(given, torch.tensor([position]), None, self.cache)[:, 0].numpy()
        return hidden

    def repeated(self, rows: int, room: int) -> ModelReader:
        return ModelReader(self.model, self.cache.repeated(rows, room))


def causal(count: int, before: int = 0) -> Tensor:
    """The mask of `count` tokens in a row behind `before` others: each looks at none after it."""
    return torch.ones(count, before + count, dtype=torch.bool).tril(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Arithmetic in one order, whatever number of threads there is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
