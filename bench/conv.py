"""The convolutions of ResNet-50 at batch 1, one thread, against torch.

    python -m bench.conv                       the table
    python -m bench.conv --json conv.json      the same figures as data
    python -m bench.conv --only 3x3            those whose names contain the text

Each is the one task that a network of this layer alone is compiled to, by the rules' schedule, its
weights packed beforehand. `own` uses the widest vectors of this machine; on one with vectors
of 512 bits `256` is compiled for x86-64-v3, and its roof is what such vectors allow. Ours writes
into an array that is there; torch makes its result, in memory that it has at hand. Operations count
two for each product and nothing for the rest. Names: window, channels, filters and size of the
image; `/2` is the stride; `b` is a bias, `r` a ReLU, `a` an addition of another tensor before it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

# isort: split
import bench.one_thread  # noqa: F401
from bench.compare import Row, Turns, arguments, compare, heading, multiply_adds, turns_of
from bench.harness import report

# isort: split
import torch
from torch import nn

from tensorc.graph.compile import compile
from tensorc.graph.kernels import build_kernels
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Buffer
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Shape:
    """A convolution over a square image, padded by half its window."""

    window: int
    channels: int
    filters: int
    size: int
    stride: int = 1
    ending: str = "br"

    @property
    def name(self) -> str:
        step = f"/{self.stride}" if self.stride > 1 else ""
        what = f"{self.window}x{self.window} {self.channels}->{self.filters} {self.size}{step}"
        return f"{what} {self.ending}".rstrip()

    @property
    def operations(self) -> float:
        out = -(-self.size // self.stride)
        return 2.0 * out**2 * self.filters * self.channels * self.window**2


SHAPES = (
    # The two that have a mark of their own, then those of the network from its input on.
    Shape(3, 64, 64, 56, ending=""),
    Shape(1, 256, 64, 56),
    Shape(7, 3, 64, 224, stride=2),
    Shape(1, 64, 64, 56),
    Shape(3, 64, 64, 56),
    Shape(1, 64, 256, 56, ending="b"),
    Shape(1, 64, 256, 56, ending="bar"),
    Shape(1, 256, 128, 56),
    Shape(3, 128, 128, 56, stride=2),
    Shape(1, 256, 512, 56, stride=2, ending="b"),
    Shape(1, 128, 512, 28, ending="bar"),
    Shape(1, 512, 128, 28),
    Shape(3, 128, 128, 28),
    Shape(1, 512, 256, 28),
    Shape(3, 256, 256, 28, stride=2),
    Shape(1, 512, 1024, 28, stride=2, ending="b"),
    Shape(1, 256, 1024, 14, ending="bar"),
    Shape(1, 1024, 256, 14),
    Shape(3, 256, 256, 14),
    Shape(1, 1024, 512, 14),
    Shape(3, 512, 512, 14, stride=2),
    Shape(1, 1024, 2048, 14, stride=2, ending="b"),
    Shape(1, 512, 2048, 7, ending="bar"),
    Shape(1, 2048, 512, 7),
    Shape(3, 512, 512, 7),
)


class Convolution(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        pad = shape.window // 2
        sizes = (shape.channels, shape.filters, shape.window, shape.stride, pad)
        self.convolution = nn.Conv2d(*sizes, bias="b" in shape.ending)
        self.relu = "r" in shape.ending

    def forward(self, image: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        result = self.convolution(image)
        if other is not None:
            result = result + other
        return torch.relu(result) if self.relu else result


def targets() -> dict[str, Target]:
    host = Target.parse("cpu")
    if host.vector_bits <= 256:
        return {"own": host}
    return {"own": host, "256": Target.parse("cpu:x86-64-v3")}


def kernel(layer: Convolution, inputs: list[torch.Tensor], target: Target) -> Callable[[], object]:
    """The layer's task on these inputs, once its result is known to be right."""
    (task,) = compile(layer, tuple(inputs), target).tasks
    (made,) = build_kernels([task.func], target)
    weights = [value.numpy() for value in layer.parameters()]
    values = {f"X{n}": value.numpy() for n, value in enumerate(inputs)}
    values |= {f"W{n}": value for n, value in enumerate(weights)}
    wanted = layer(*inputs)
    result = torch.full_like(wanted, torch.nan)
    for param in task.func.params:
        assert isinstance(param.value, Buffer)
        shape = [constant(extent) for extent in param.value.shape]
        values[param.name] = values.get(param.name, result.numpy()).reshape(shape)
    for name, pack in made.packs:
        values[name] = pack.run(values[name])
    arrays = [values[param.name] for param in task.func.params]
    made.module(*arrays)
    torch.testing.assert_close(result, wanted, rtol=1e-3, atol=1e-3)
    return lambda: made.module(*arrays)


def measure(shape: Shape, turns: Turns) -> list[Row]:
    layer = Convolution(shape).eval()
    inputs = [torch.randn(1, shape.channels, shape.size, shape.size)]
    if "a" in shape.ending:
        out = -(-shape.size // shape.stride)
        inputs.append(torch.randn(1, shape.filters, out, out))
    ours = {
        name: (kernel(layer, inputs, target), multiply_adds(target.vector_bits))
        for name, target in targets().items()
    }
    peers = {"torch": lambda: layer(*inputs)}
    return compare(shape.name, shape.operations, "GFLOP/s", ours, peers, turns)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="a part of the names to measure")
    options = parser.parse_args()
    turns = turns_of(options)
    # torch.export uses what torch deprecates.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.inference_mode():
        shapes = [shape for shape in SHAPES if options.only in shape.name]
        rows = [row for shape in shapes for row in measure(shape, turns)]
    report(heading(turns), rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
