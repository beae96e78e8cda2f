"""The network on kernels that tensorc compiles itself: a trained one is used without torch.

It computes what `tensorc.tlm.model` does, up to rounding. A kernel is for 1 or for 16 rows, which
are tokens: those of a prompt, or one of each sentence. Its constants are packed once, by the
schedule of its template. NumPy looks up rows of tables and moves keys into place.

Keys and values of what is read at once (a prompt) are kept in parts of 64, which all sentences
share; those of what each sentence writes in parts of 16 of its own. The soft maximum is taken part
by part (Milakov and Gimelshein, 2018).

Shapes: R rows, C channels, H heads, D channels of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.tlm import nests
from tensorc.tlm.kernels import Kernels
from tensorc.tlm.network import Floats, Mask, Numbers, Shape

ROWS = 16
"""Rows of a kernel, where there is more than one."""
SHARED = 64
"""Keys of a part that all rows look at."""
OWN = 16
"""Keys of a part of which each row has its own."""
LOWEST = np.float32(-1e30)
"""The greatest of no scores: finite, so that no difference of two is NaN."""

Pair = tuple[Floats, Floats]


class Part(NamedTuple):
    """Keys and values that rows look at, and what is added to the scores, (R, keys): 0, or minus
    infinity where a row does not look. `own`: each row has its own."""

    keys: Floats
    values: Floats
    added: Floats
    own: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of a block in the order of use, each with its bias or shift."""

    norm1: Pair
    heads: Pair
    outer: Pair
    norm2: Pair
    wide: Pair
    narrow: Pair


class Native:
    """A network of these weights, see `Network`.

    Args:
        shape: its sizes.
        tensors: its weights by the names that they have in the model in PyTorch, f32.

    Raises:
        ValueError: a weight is missing, unknown, or of another shape.
    """

    def __init__(self, shape: Shape, tensors: Mapping[str, Floats]) -> None:
        self._shape = shape
        check(shape, tensors)
        self.kernel = Kernels()
        self.pieces = tensors["pieces.weight"].copy()
        self.pieces[0] = 0.0
        self.positions = tensors["positions.weight"]
        self.layers = [_layer(shape, tensors, n) for n in range(shape.layers)]
        self.norm = _pair(tensors, "norm")
        self.written = _turned(tensors["pieces.weight"]), np.zeros(shape.pieces, np.float32)
        self.slowness = [_linear(tensors, f"slowness.{n}") for n in (0, 2)]

    @property
    def shape(self) -> Shape:
        return self._shape

    def alone(self) -> AbstractContextManager[Any]:
        """The kernels have one thread, always."""
        return nullcontext()

    def reader(self, room: int) -> NativeReader:
        """As `Network.reader`."""
        return NativeReader(self, (), 1, room)

    def scores(self, hidden: Floats, options: Numbers) -> Floats:
        """As `Network.scores`."""
        shape = self.shape
        table = self.each(nests.linear, hidden, self.written, shape.pieces)
        rows = self._seen(options).reshape(len(options), -1)
        found: Floats = np.take_along_axis(table, rows, 1).reshape(options.shape).sum(-1)
        found[options[..., 0] == 0] = -np.inf
        return found

    def expected(self, hidden: Floats) -> Floats:
        """As `Network.expected`."""
        inner = self.each(nests.gelu_erf, hidden, self.slowness[0], self.shape.width)
        return self.each(nests.linear, inner, self.slowness[1], 1)[:, 0]

    def embedded(self, tokens: Numbers, positions: Numbers | int) -> Floats:
        """What tokens mean where they are, (T, C)."""
        found: Floats = self.pieces[self._seen(tokens)].sum(1) + self.positions[positions]
        return found

    def each(self, nest: Callable[..., Func], x: Floats, weights: Pair, after: int) -> Floats:
        """A product of all rows, (N, after)."""
        blocks = padded(x)
        found = np.empty((*blocks.shape[:2], after), np.float32)
        for given, made in zip(blocks, found, strict=True):
            self.kernel(nest, *given.shape, after)(given, *weights, made)
        return found.reshape(-1, after)[: len(x)]

    def normed(self, x: Floats, weights: Pair) -> Floats:
        """Layer norm of a block of rows, (R, C)."""
        found = np.empty_like(x)
        self.kernel(nests.norm, *x.shape)(x, *weights, found)
        return found

    def heads(self, x: Floats, layer: Layer) -> Floats:
        """Queries, keys and values of blocks of rows, (blocks, 3, R, C)."""
        found = np.empty((len(x), 3, *x.shape[1:]), np.float32)
        kernel = self.kernel(nests.heads, *x.shape[1:])
        for given, made in zip(x, found, strict=True):
            kernel(self.normed(given, layer.norm1), *layer.heads, made)
        return found

    def attended(
        self, x: Floats, queries: Floats, parts: Sequence[Iterator[Part]], layer: Layer
    ) -> Floats:
        """The residual of blocks of rows, (blocks, R, C), behind attention and perceptron."""
        found = np.empty_like(x)
        _, rows, width = x.shape
        outer = self.kernel(nests.residual, rows, width, width)
        wider = self.kernel(nests.gelu_tanh, rows, width, 4 * width)
        narrower = self.kernel(nests.residual, rows, 4 * width, width)
        behind, wide = np.empty((rows, width), np.float32), np.empty((rows, 4 * width), np.float32)
        for given, asking, looked, made in zip(x, queries, parts, found, strict=True):
            mixed = self._mixed(asking.reshape(rows, self.shape.heads, -1), looked)
            outer(mixed.reshape(rows, width), *layer.outer, given, behind)
            wider(self.normed(behind, layer.norm2), *layer.wide, wide)
            narrower(wide, *layer.narrow, behind, made)
        return found

    def _mixed(self, queries: Floats, parts: Iterator[Part]) -> Floats:
        """Values by the soft maximum of the scores of their keys, (R, H, D)."""
        rows, heads, size = queries.shape
        most = np.full((rows, heads), LOWEST)
        total, mixed = np.zeros((rows, heads), np.float32), np.zeros_like(queries)
        for keys, values, added, own in parts:
            count = added.shape[1]
            fits, shares = np.empty((2, rows, heads, count), np.float32)
            state = np.empty((3, rows, heads), np.float32)
            self.kernel(nests.scores, rows, heads, size, count, own=own)(queries, keys, fits)
            kernel = self.kernel(nests.soften, rows, heads, count)
            kernel(fits, added, most, total, shares, *state)
            most, total, less = state
            before, mixed = mixed, np.empty_like(queries)
            kernel = self.kernel(nests.mix, rows, heads, size, count, own=own)
            kernel(shares, values, less, before, mixed)
        mixed /= total[:, :, None]
        return mixed

    def _seen(self, tokens: Numbers) -> Numbers:
        """Tokens without the pieces that are not read."""
        blind = self.shape.blind
        return np.where(tokens >= blind, 0, tokens) if blind else tokens


class Kept:
    """Keys and values of tokens that one sequence has read at once, for each layer."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.layers: list[Pair] = []

    def take(self, keys: Floats, values: Floats) -> None:
        """The next layer's, (length, H, D) each."""
        count = -(-self.length // SHARED)
        both = np.zeros((2, count * SHARED, *keys.shape[1:]), np.float32)
        both[0, : self.length], both[1, : self.length] = keys, values
        own = both.reshape(2, count, SHARED, *keys.shape[1:])
        turned = own[0].transpose(0, 2, 3, 1), own[1].transpose(0, 2, 1, 3)
        self.layers.append((np.ascontiguousarray(turned[0]), np.ascontiguousarray(turned[1])))

    def added(self, mask: Mask, rows: int) -> Floats:
        """A mask (T, length) as what is added, (blocks of rows, parts, rows of one, keys of one).
        Rows that fill up a block look where the last one does."""
        count, blocks = -(-self.length // SHARED), -(-len(mask) // rows)
        found = np.full((blocks * rows, count * SHARED), -np.inf, np.float32)
        found[: len(mask), : self.length][mask] = 0.0
        found[len(mask) :] = found[len(mask) - 1]
        parts = found.reshape(blocks, rows, count, SHARED).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(parts)


@dataclass(slots=True)
class Written:
    """Keys and values of what each of several sequences has written: of each layer and part of 16
    an array for all rows, (blocks of rows, R, H, D, 16) and (blocks of rows, R, H, 16, D)."""

    length: int = 0
    parts: list[list[Pair]] = field(default_factory=list)

    def grow(self, layers: int, shape: tuple[int, int, int, int]) -> None:
        """Room for 16 more; `shape` is (blocks, R, H, D)."""
        size = shape[3]
        made = [
            (np.zeros((*shape, OWN), np.float32), np.zeros((*shape[:3], OWN, size), np.float32))
            for _ in range(layers)
        ]
        self.parts.append(made)

    def take(self, layer: int, keys: Floats, values: Floats) -> None:
        """Those of one token of each sequence, (blocks, R, H, D)."""
        part, place = divmod(self.length, OWN)
        self.parts[part][layer][0][..., place] = keys
        self.parts[part][layer][1][..., place, :] = values


class NativeReader:
    """A network that reads, see `Reader`. Sequences that were read are shared, and never change."""

    def __init__(self, network: Native, kept: Sequence[Kept], rows: int, room: int) -> None:
        self.network, self.kept, self.rows, self.room = network, tuple(kept), rows, room
        self.written: Written | None = None
        self.added: list[Floats] = []

    @property
    def length(self) -> int:
        written = 0 if self.written is None else self.written.length
        return sum(kept.length for kept in self.kept) + written

    def repeated(self, rows: int, room: int) -> NativeReader:
        """As `Reader.repeated`: nothing is copied. Raises ArgumentError once it has written."""
        self._check_whole()
        return NativeReader(self.network, self.kept, rows, room)

    def read(self, tokens: Numbers, positions: Numbers, mask: Mask) -> Floats:
        """As `Reader.read`. Raises ArgumentError for several sequences, or one that has written."""
        self._check_whole()
        network, count = self.network, len(tokens)
        new = Kept(count)
        ends = np.cumsum([kept.length for kept in self.kept])
        self.kept = (*self.kept, new)
        x = padded(network.embedded(tokens, positions))
        masks = np.split(mask, ends, axis=1)
        added = [kept.added(own, x.shape[1]) for kept, own in zip(self.kept, masks, strict=True)]
        for number, layer in enumerate(network.layers):
            made = network.heads(x, layer)
            both = made[:, 1:].swapaxes(0, 1).reshape(2, x.shape[0] * x.shape[1], -1)[:, :count]
            new.take(*both.reshape(2, count, network.shape.heads, -1))
            parts = [self._shared(number, [some[n] for some in added]) for n in range(len(x))]
            x = network.attended(x, made[:, 0], parts, layer)
        return self._finished(x, count)

    def step(self, tokens: Numbers, position: int) -> Floats:
        """As `Reader.step`."""
        network = self.network
        x = padded(network.embedded(tokens, position))
        blocks, rows, width = x.shape
        shape = (blocks, rows, network.shape.heads, width // network.shape.heads)
        if self.written is None:
            self.written = Written()
            whole = [np.ones((rows, kept.length), np.bool_) for kept in self.kept]
            pairs = zip(self.kept, whole, strict=True)
            self.added = [kept.added(mask, rows)[0] for kept, mask in pairs]
        written = self.written
        while written.length >= len(written.parts) * OWN or len(written.parts) * OWN < self.room:
            written.grow(network.shape.layers, shape)
        for number, layer in enumerate(network.layers):
            made = network.heads(x, layer)
            written.take(number, made[:, 1].reshape(shape), made[:, 2].reshape(shape))
            parts = [self._all(number, n, rows) for n in range(blocks)]
            x = network.attended(x, made[:, 0], parts, layer)
        written.length += 1
        return self._finished(x, len(tokens))

    def _shared(self, layer: int, added: Sequence[Floats]) -> Iterator[Part]:
        """The parts that some row of a block looks at; what is added is (parts, R, keys)."""
        for kept, own in zip(self.kept, added, strict=True):
            for keys, values, one in zip(*kept.layers[layer], own, strict=True):
                if not np.isneginf(one).all():
                    yield Part(keys, values, one, False)

    def _all(self, layer: int, block: int, rows: int) -> Iterator[Part]:
        """What is shared, and what the rows of a block have written, the newest token too."""
        assert self.written is not None
        yield from self._shared(layer, self.added)
        for n in range(self.written.length // OWN + 1):
            keys, values = self.written.parts[n][layer]
            added = np.zeros((rows, OWN), np.float32)
            added[:, max(self.written.length + 1 - n * OWN, 0) :] = -np.inf
            yield Part(keys[block], values[block], added, True)

    def _finished(self, x: Floats, count: int) -> Floats:
        network = self.network
        found = np.stack([network.normed(block, network.norm) for block in x])
        return found.reshape(-1, found.shape[2])[:count]

    def _check_whole(self) -> None:
        if self.rows != 1 or self.written is not None:
            reason = "several sequences, or one that has written, take single steps only"
            raise ArgumentError("reader", reason)


def padded(x: Floats) -> Floats:
    """Rows in blocks that kernels take, (blocks, R, C), with zeros behind the last one."""
    if len(x) == 1:
        return np.ascontiguousarray(x)[None]
    blocks = -(-len(x) // ROWS)
    found = np.zeros((blocks * ROWS, x.shape[1]), np.float32)
    found[: len(x)] = x
    return found.reshape(blocks, ROWS, -1)


def sizes_of(shape: Shape) -> dict[str, tuple[int, ...]]:
    """The weights of a network by name, and their shapes."""
    c = shape.width
    found: dict[str, tuple[int, ...]] = {
        "pieces.weight": (shape.pieces, c),
        "positions.weight": (shape.prompt + shape.answer, c),
    }

    def linear(name: str, before: int, after: int) -> None:
        found.update({f"{name}.weight": (after, before), f"{name}.bias": (after,)})

    def norm(name: str) -> None:
        found.update({f"{name}.weight": (c,), f"{name}.bias": (c,)})

    for n in range(shape.layers):
        for name in ("norm1", "norm2"):
            norm(f"blocks.{n}.{name}")
        linear(f"blocks.{n}.attention.inner", c, 3 * c)
        linear(f"blocks.{n}.attention.outer", c, c)
        linear(f"blocks.{n}.perceptron.0", c, 4 * c)
        linear(f"blocks.{n}.perceptron.2", 4 * c, c)
    norm("norm")
    linear("slowness.0", c, c)
    linear("slowness.2", c, 1)
    return found


def check(shape: Shape, tensors: Mapping[str, Floats]) -> None:
    """Raises ValueError for weights that are not those of a network of this shape."""
    wanted = sizes_of(shape)
    for name in (*wanted, *tensors):
        if name not in tensors:
            raise ValueError(f"there is no {name}")
        if name not in wanted:
            raise ValueError(f"{name} is not of a network of {shape.layers} layers")
        if tensors[name].shape != wanted[name]:
            got = tensors[name].shape
            raise ValueError(f"size mismatch: {name} is {got}, and by its sizes {wanted[name]}")


def _layer(shape: Shape, tensors: Mapping[str, Floats], number: int) -> Layer:
    name, c = f"blocks.{number}", shape.width
    inner, bias = (tensors[f"{name}.attention.inner.{kind}"].copy() for kind in ("weight", "bias"))
    # Queries come already divided by the root of the channels of a head.
    scale = np.float32(1.0 / math.sqrt(c // shape.heads))
    inner[:c] *= scale
    bias[:c] *= scale
    weights = np.ascontiguousarray(inner.reshape(3, c, c).transpose(0, 2, 1))
    return Layer(
        _pair(tensors, f"{name}.norm1"),
        (weights, bias.reshape(3, c)),
        _linear(tensors, f"{name}.attention.outer"),
        _pair(tensors, f"{name}.norm2"),
        _linear(tensors, f"{name}.perceptron.0"),
        _linear(tensors, f"{name}.perceptron.2"),
    )


def _pair(tensors: Mapping[str, Floats], name: str) -> Pair:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _linear(tensors: Mapping[str, Floats], name: str) -> Pair:
    return _turned(tensors[f"{name}.weight"]), tensors[f"{name}.bias"]


def _turned(weight: Floats) -> Floats:
    return np.ascontiguousarray(weight.T)
