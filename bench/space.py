"""How large spaces are, and how fast sentences are drawn, numbered and counted.

    python -m bench.space                       the table
    python -m bench.space --json space.json     the same figures as data

`sentences` is the exact count, `nodes` how many different ones counting met and `count_ms` how long
that took. Rates are sentences a second of one core, by its own clock: `walk` draws by random walks,
`uniform` draws uniformly, `rank` numbers what was drawn, `near` replays neighbours. Nothing is
applied to a program.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import tensorc as tc
from bench import harness
from tensorc.ir.build import Tensor
from tensorc.ir.nodes import Func
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.testing.draw import Seeded
from tensorc.testing.tasks import make_task

TARGET = "cpu:x86-64-v3"
WANTED = 1000
"""Sentences a second on one core, at least."""


def product(m: int, n: int, k: int) -> Func:
    a = tc.placeholder((m, k), "f32", name="A")
    b = tc.placeholder((k, n), "f32", name="B", mode="const")
    r = tc.reduce_axis(k, name="k")
    c = tc.compute((m, n), lambda i, j: tc.sum(a[i, r] * b[r, j], axis=r), name="C")
    return tc.func_of([a, b], [c], name="product")


def convolution(channels: int, filters: int, size: int, taps: int) -> Func:
    """Of padded NCHW data, with a ReLU behind it."""
    pad = taps // 2
    data = tc.placeholder((1, channels, size, size), "f32", name="X")
    weight = tc.placeholder((filters, channels, taps, taps), "f32", name="W", mode="const")
    padded = _padded(data, channels, size, pad) if pad else data
    c, r, s = (tc.reduce_axis(n, name=m) for n, m in ((channels, "c"), (taps, "r"), (taps, "s")))
    shape = (1, filters, size, size)
    sums = tc.compute(
        shape,
        lambda n, k, y, x: tc.sum(padded[n, c, y + r, x + s] * weight[k, c, r, s], axis=[c, r, s]),
        name="C",
    )
    out = tc.compute(shape, lambda n, k, y, x: tc.maximum(sums[n, k, y, x], 0.0), name="Y")
    return tc.func_of([data, weight], [out], name="convolution")


def _padded(data: Tensor, channels: int, size: int, pad: int) -> Tensor:
    def element(n: object, c: object, y: object, x: object) -> object:
        inside = [tc.logical_and(p >= pad, p < size + pad) for p in (y, x)]
        return tc.select(tc.logical_and(*inside), data[n, c, y - pad, x - pad], 0.0)

    return tc.compute((1, channels, size + 2 * pad, size + 2 * pad), element, name="P")


TASKS: Mapping[str, Callable[[], Func]] = {
    "product 197x768x3072": lambda: product(197, 768, 3072),
    "product 1024x1024x1024": lambda: product(1024, 1024, 1024),
    "conv3x3 64->64 at 56x56": lambda: convolution(64, 64, 56, 3),
    "conv1x1 256->512 at 14x14": lambda: convolution(256, 512, 14, 1),
    **{
        f"random {family}": lambda family=family: make_task(Seeded(family), family)
        for family in ("pointwise", "reduction", "softmax", "norm", "window")
    },
}


@dataclass(frozen=True, slots=True)
class Row:
    """The space of one task."""

    task: str
    sentences: str
    nodes: int
    count_ms: float
    walk: float
    uniform: float
    rank: float
    near: float


def rate(made: Callable[[], Iterable[object]]) -> float:
    """How many are made in a second of this process."""
    start = time.process_time()
    number = sum(1 for _ in made())
    return number / max(time.process_time() - start, 1e-9)


def measure(name: str, draws: int) -> Row:
    space = Space(TASKS[name](), Target.parse(TARGET))
    start = time.process_time()
    count = space.count
    seconds = time.process_time() - start
    drawn = space.sample(0, draws)
    return Row(
        name,
        f"{count:.3g}" if count >= 10**6 else str(count),
        space.nodes,
        1e3 * seconds,
        rate(lambda: space.sample(0, draws)),
        rate(lambda: space.sample(0, draws, uniform=True)),
        rate(lambda: map(space.rank, drawn)),
        rate(lambda: islice(space.neighbours(drawn[0]), draws)),
    )


def main() -> int:
    parser = harness.arguments(__doc__)
    parser.add_argument("--draws", type=int, default=300, help="sentences of each rate")
    options = parser.parse_args()
    rows = [measure(name, options.draws) for name in TASKS]
    harness.report(f"spaces for {TARGET}", rows, options.json)
    slowest = min(rows, key=lambda row: row.walk)
    print(f"slowest: {slowest.walk:.0f} sentences a second of one core, {slowest.task}")
    return 0 if slowest.walk >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
