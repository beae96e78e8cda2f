"""Synthetic tasks: thousands of programs like those of networks, in extents that no network has.

They are drawn from families of operators, with what follows these in networks. None is a task of
the development or the test set, none is of a family that is held out there (transposed, dilated
and grouped convolution, layer norm), and none does more work than tasks that are trained on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorc.ir import build as tc
from tensorc.ir.arith import constant
from tensorc.ir.build import Handle, Tensor
from tensorc.ir.nodes import Buffer, Func
from tensorc.tasks import task_set
from tensorc.tasks.structure import structure

MOST_WORK = 400_000_000
"""Iterations of a reduction at most: 0.8 GFLOP, below what the test set calls larger."""
MOST_ELEMENTS = 8_000_000
"""Elements of all parameters together, 32 MB."""
USUAL = (
    1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256,
    320, 384, 512, 576, 640, 768, 1000, 1024, 1152, 1280, 1536, 2048, 3072, 4096,
)  # fmt: skip
"""Extents that networks have."""


Place: TypeAlias = Handle | int


@dataclass(frozen=True, slots=True)
class Grid:
    """A tensor that is indexed with all its dimensions, and has those that are longer than 1, as
    tasks of networks do."""

    tensor: Tensor
    shape: tuple[int, ...]

    def __getitem__(self, place: tuple[Place, ...]) -> Handle:
        pairs = zip(place, self.shape, strict=True)
        return self.tensor[tuple(index for index, extent in pairs if extent > 1)]


@dataclass(slots=True)
class Draw:
    """Random numbers, and the inputs of the task that is being made."""

    source: random.Random
    inputs: list[Tensor]

    def extent(self, least: int, most: int) -> int:
        """One that networks have, or, two times in five, any other; small ones more often."""
        usual = [n for n in USUAL if least <= n <= most]
        if usual and self.source.random() < 0.6:
            return self.source.choice(usual)
        number = math.exp(self.source.uniform(math.log(least), math.log(most + 1)))
        return min(max(int(number), least), most)

    def pick(self, *options: Any) -> Any:
        return self.source.choice(options)

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def input(self, name: str, *shape: int, weight: bool = False) -> Grid:
        kept = tuple(extent for extent in shape if extent > 1)
        made = tc.placeholder(kept, "f32", name=name, mode="const" if weight else "in")
        self.inputs.append(made)
        return Grid(made, shape)


def _stage(name: str, shape: Sequence[int], element: Callable[..., Handle]) -> Grid:
    def filled(*place: Handle) -> Handle:
        rest = iter(place)
        return element(*(next(rest) if extent > 1 else 0 for extent in shape))

    kept = tuple(extent for extent in shape if extent > 1)
    return Grid(tc.compute(kept, filled, name=name), tuple(shape))


def _reduced(
    reduce: Callable[..., Handle], extents: Sequence[int], term: Callable[..., Handle]
) -> Handle:
    """A reduction over so many axes; one of a single iteration is none."""
    axes = [tc.reduce_axis(n, name=f"r{place}") if n > 1 else 0 for place, n in enumerate(extents)]
    several = [axis for axis in axes if not isinstance(axis, int)]
    value = term(*axes)
    return reduce(value, axis=several) if several else value


def _at(place: Place, step: int, tap: Place) -> Place:
    """place * step + tap, without what changes nothing."""
    moved = place if step == 1 or isinstance(place, int) else place * step
    if isinstance(moved, int) or isinstance(tap, int):
        return tap if isinstance(moved, int) else moved
    return moved + tap


def _gelu(x: Handle) -> Handle:
    return x * 0.5 * (tc.erf(x * 0.70710677) + 1.0)


ACTIVATIONS: Sequence[Callable[[Handle], Handle]] = (
    lambda x: tc.maximum(x, 0.0),
    lambda x: tc.minimum(tc.maximum(x, 0.0), 6.0),
    _gelu,
    lambda x: x * tc.sigmoid(x),
    tc.tanh,
    tc.sigmoid,
    lambda x: x * 0.125,
)


def _followed(draw: Draw, found: Grid, bias: Sequence[int]) -> Grid:
    """What stands behind an operator: a bias along some dimensions, an activation, a residual."""
    shape = found.shape
    sizes = [shape[dim] for dim in bias]
    added = draw.input("V", *sizes, weight=True) if draw.chance(0.6) else None
    other = draw.input("R", *shape) if draw.chance(0.25) else None
    activation = draw.pick(*ACTIVATIONS) if draw.chance(0.6) else None
    if added is None and other is None and activation is None:
        return found

    def element(*place: Handle) -> Handle:
        value = found[place]
        if added is not None:
            value = value + added[tuple(place[dim] for dim in bias)]
        if other is not None:
            value = value + other[place]
        return value if activation is None else activation(value)

    return _stage("Y", shape, element)


# Families -----------------------------------------------------------------------------------------


def product(draw: Draw) -> Grid:
    """A matrix product, with batches or without, of weights or of two inputs."""
    batch = draw.pick(1, 1, 1, draw.extent(2, 48))
    m, n, k = draw.extent(1, 4096), draw.extent(8, 4096), draw.extent(8, 4096)
    while batch * m * n * k > MOST_WORK:
        m, n, k = max(m // 2, 1), max(2 * n // 3, 8), max(2 * k // 3, 8)
    fixed, across = batch == 1 and draw.chance(0.7), draw.chance(0.6)
    head = (batch,) if batch > 1 else ()
    a = draw.input("A", *head, m, k)
    b = draw.input("B", *head, *((n, k) if across else (k, n)), weight=fixed)

    def element(*place: Place) -> Handle:
        *group, i, j = place
        return _reduced(
            tc.sum, [k], lambda r: a[(*group, i, r)] * b[(*group, *((j, r) if across else (r, j)))]
        )

    return _followed(draw, _stage("C", (*head, m, n), element), [len(head) + 1])


def _window(draw: Draw) -> tuple[int, int, int]:
    """Taps, step and padding of a window."""
    taps = draw.pick(1, 1, 3, 3, 3, 5, 7)
    return taps, draw.pick(1, 1, 2), taps // 2 if draw.chance(0.8) else 0


def _padded(data: Grid, shape: Sequence[int], pad: int, fill: float = 0.0) -> Grid:
    """Images (n, c, h, w, rest) with a border."""
    if not pad:
        return data
    n, c, h, w, *rest = shape

    def element(*place: Handle) -> Handle:
        g, q, y, x, *lane = place
        inside = tc.logical_and(
            tc.logical_and(y >= pad, y < h + pad), tc.logical_and(x >= pad, x < w + pad)
        )
        return tc.select(inside, data[(g, q, y - pad, x - pad, *lane)], fill)

    return _stage("P", (n, c, h + 2 * pad, w + 2 * pad, *rest), element)


def _image(draw: Draw, channels: int, most: int) -> tuple[int, int, int]:
    """Batch, height and width, so that there are not too many elements."""
    size = draw.extent(4, 224)
    while channels * size * size > most:
        size = max(size // 2, 4)
    batch = draw.pick(1, 1, 2, 4)
    if batch * channels * size * size > most:
        batch = 1
    return batch, size, draw.pick(size, size, size + 1)


def convolution(draw: Draw) -> Grid:
    """A convolution of images in planes."""
    c, k = draw.extent(3, 512), draw.extent(8, 512)
    batch, h, w = _image(draw, max(c, k), 1 << 20)
    taps, step, pad = _window(draw)
    taps = min(taps, h, w)
    while batch * c * k * h * w * taps * taps > MOST_WORK * step * step:
        c, k = max(c // 2, 1), max(k // 2, 4)
    data = draw.input("X", batch, c, h, w)
    weight = draw.input("W", k, c, taps, taps, weight=True)
    padded = _padded(data, (batch, c, h, w), pad)
    rows, columns = ((n + 2 * pad - taps) // step + 1 for n in (h, w))

    def element(n: Place, f: Place, y: Place, x: Place) -> Handle:
        def term(q: Place, r: Place, s: Place) -> Handle:
            return padded[n, q, _at(y, step, r), _at(x, step, s)] * weight[f, q, r, s]

        return _reduced(tc.sum, [c, taps, taps], term)

    return _followed(draw, _stage("C", (batch, k, rows, columns), element), [1])


def blocks(draw: Draw) -> Grid:
    """A convolution of images whose channels lie in blocks of a vector's width."""
    lanes = draw.pick(4, 8, 8, 16)
    c, k = draw.extent(1, 512 // lanes), draw.extent(1, 512 // lanes)
    batch, h, w = _image(draw, lanes * max(c, k), 1 << 20)
    taps, step, pad = _window(draw)
    taps = min(taps, h, w)
    while batch * c * k * lanes * lanes * h * w * taps * taps > MOST_WORK * step * step:
        c, k = max(c // 2, 1), max(k // 2, 1)
    data = draw.input("X", batch, c, h, w, lanes)
    weight = draw.input("W", k, c, taps, taps, lanes, lanes, weight=True)
    padded = _padded(data, (batch, c, h, w, lanes), pad)
    rows, columns = ((n + 2 * pad - taps) // step + 1 for n in (h, w))

    def element(n: Place, f: Place, y: Place, x: Place, o: Place) -> Handle:
        def term(q: Place, r: Place, s: Place, b: Place) -> Handle:
            read = padded[n, q, _at(y, step, r), _at(x, step, s), b]
            return read * weight[f, q, r, s, b, o]

        return _reduced(tc.sum, [c, taps, taps, lanes], term)

    return _followed(draw, _stage("C", (batch, k, rows, columns, lanes), element), [1, 4])


def windows(draw: Draw) -> Grid:
    """A depthwise convolution or pooling, in planes or in blocks of channels."""
    lanes = draw.pick(0, 4, 8, 16)
    c = draw.extent(1, 512 // max(lanes, 1))
    batch, h, w = _image(draw, c * max(lanes, 1), 1 << 21)
    taps, step, pad = draw.pick(2, 3, 3, 5, 7), draw.pick(1, 2), 1
    taps = min(taps, h, w)
    deep = (lanes,) if lanes else ()
    image = (batch, c, h, w, *deep)
    data = draw.input("X", *image)
    pools = draw.chance(0.35)
    weight = None if pools else draw.input("W", c, taps, taps, *deep, weight=True)
    padded = _padded(data, image, pad, -1e38 if pools else 0.0)
    rows, columns = ((n + 2 * pad - taps) // step + 1 for n in (h, w))

    def element(*place: Place) -> Handle:
        n, q, y, x, *lane = place

        def term(r: Place, s: Place) -> Handle:
            read = padded[(n, q, _at(y, step, r), _at(x, step, s), *lane)]
            return read if weight is None else read * weight[(q, r, s, *lane)]

        return _reduced(tc.max if pools else tc.sum, [taps, taps], term)

    made = _stage("C", (batch, c, rows, columns, *deep), element)
    return made if pools else _followed(draw, made, [1, 4] if lanes else [1])


def reduction(draw: Draw) -> Grid:
    """A sum, a mean or the largest, along rows, columns or both."""
    m, n = draw.extent(1, 4096), draw.extent(2, 8192)
    while m * n > MOST_ELEMENTS // 2:
        m = max(m // 2, 1)
    x = draw.input("X", m, n)
    reduce, change = draw.pick(tc.sum, tc.max), draw.pick(None, None, _square, tc.exp)

    def read(*place: Any) -> Any:
        return x[place] if change is None else change(x[place])

    match draw.pick("rows", "rows", "columns", "both"):
        case "rows":
            return _stage("S", (m,), lambda i: _reduced(reduce, [n], lambda r: read(i, r)))
        case "columns":
            return _stage("S", (n,), lambda j: _reduced(reduce, [m], lambda r: read(r, j)))
    return _stage("S", (), lambda: _reduced(reduce, [m, n], read))


def _square(x: Handle) -> Handle:
    return x * x


def softmax(draw: Draw) -> Grid:
    m, n = draw.extent(1, 4096), draw.extent(2, 2048)
    x = draw.input("X", m, n)
    top = _stage("M", (m,), lambda i: _reduced(tc.max, [n], lambda r: x[i, r]))
    grown = _stage("G", (m, n), lambda i, j: tc.exp(x[i, j] - top[(i,)]))
    total = _stage("S", (m,), lambda i: _reduced(tc.sum, [n], lambda r: grown[i, r]))
    if draw.chance(0.5):
        return _stage("Y", (m, n), lambda i, j: grown[i, j] / total[(i,)])
    share = _stage("Q", (m,), lambda i: 1.0 / total[(i,)])
    return _stage("Y", (m, n), lambda i, j: grown[i, j] * share[(i,)])


def rms_norm(draw: Draw) -> Grid:
    m, n = draw.extent(1, 4096), draw.extent(8, 4096)
    while m * n > MOST_ELEMENTS // 2:
        m = max(m // 2, 1)
    x, scale = draw.input("X", m, n), draw.input("W", n, weight=True)
    squares = _stage("V", (m,), lambda i: _reduced(tc.sum, [n], lambda r: _square(x[i, r])))
    root = _stage("Q", (m,), lambda i: tc.rsqrt(squares[(i,)] / float(n) + 1e-6))
    return _stage("Y", (m, n), lambda i, j: x[i, j] * root[(i,)] * scale[(j,)])


def pointwise(draw: Draw) -> Grid:
    """Maps one after the other, some of inputs that lie transposed or along a row."""
    m, n = draw.extent(1, 2048), draw.extent(1, 4096)
    while m * n > MOST_ELEMENTS // 3:
        m = max(m // 2, 1)
    a = draw.input("A", m, n)
    across = draw.chance(0.25)
    b = draw.input("B", *((n, m) if across else (m, n))) if draw.chance(0.6) else None
    row = draw.input("V", n, weight=True) if draw.chance(0.5) else None
    first, last = draw.pick(*ACTIVATIONS), draw.pick(*ACTIVATIONS)
    t = _stage("T", (m, n), lambda i, j: first(a[i, j]))

    def element(i: Handle, j: Handle) -> Handle:
        value: Handle = t[i, j]
        if row is not None:
            value = value * row[(j,)]
        if b is not None:
            value = value + (b[j, i] if across else b[i, j])
        found: Handle = last(value)
        return found

    return _stage("Y", (m, n), element)


def attention(draw: Draw) -> Grid:
    """Scores, their softmax, and the sums that it weighs."""
    heads, rows, size = draw.extent(1, 24), draw.extent(8, 384), draw.pick(16, 32, 64, 80, 128)
    while heads * rows * rows * size > MOST_WORK // 2:
        rows = max(rows // 2, 4)
    q, k, v = (draw.input(name, heads, rows, size) for name in "QKV")
    shape, each = (heads, rows, rows), (heads, rows)

    def score(h: Place, i: Place, j: Place) -> Handle:
        return _reduced(tc.sum, [size], lambda d: q[h, i, d] * k[h, j, d])

    product = _stage("S", shape, score)
    scaled = _stage("Z", shape, lambda h, i, j: product[h, i, j] * 0.125)
    top = _stage("M", each, lambda h, i: _reduced(tc.max, [rows], lambda r: scaled[h, i, r]))
    grown = _stage("G", shape, lambda h, i, j: tc.exp(scaled[h, i, j] - top[h, i]))
    total = _stage("L", each, lambda h, i: _reduced(tc.sum, [rows], lambda r: grown[h, i, r]))
    shares = _stage("P", shape, lambda h, i, j: grown[h, i, j] / total[h, i])

    def weighed(h: Place, i: Place, e: Place) -> Handle:
        return _reduced(tc.sum, [rows], lambda r: shares[h, i, r] * v[h, r, e])

    return _stage("Y", (heads, rows, size), weighed)


FAMILIES: Mapping[str, tuple[Callable[[Draw], Grid], int]] = {
    "product": (product, 6),
    "convolution": (convolution, 5),
    "blocks": (blocks, 6),
    "windows": (windows, 4),
    "reduction": (reduction, 3),
    "softmax": (softmax, 2),
    "rms_norm": (rms_norm, 2),
    "pointwise": (pointwise, 3),
    "attention": (attention, 1),
}
"""Name -> (a random task, how often it is drawn, by the sum of all)."""


def synthetic(seed: int, number: int) -> Func:
    """One task, the same for a seed and a number on every machine."""
    source = random.Random(f"synthetic {seed} {number}")
    names, shares = list(FAMILIES), [share for _, share in FAMILIES.values()]
    while True:
        (family,) = source.choices(names, shares)
        draw = Draw(source, [])
        found = FAMILIES[family][0](draw)
        func = tc.func_of(draw.inputs, [found.tensor], name=family)
        if _elements(func) <= MOST_ELEMENTS:
            return func


def tasks(seed: int, count: int) -> Iterator[tuple[int, Func]]:
    """Tasks with their numbers, all different and none of the development or the test set."""
    seen = {structure(task.func) for task in task_set() if task.split != "training"}
    number = 0
    while count:
        func = synthetic(seed, number)
        hashed = structure(func)
        if hashed not in seen:
            seen.add(hashed)
            count -= 1
            yield number, func
        number += 1


def _elements(func: Func) -> int:
    buffers = [param.value for param in func.params if isinstance(param.value, Buffer)]
    return sum(math.prod(constant(extent) or 0 for extent in one.shape) for one in buffers)
