"""The convolutions of ResNet-50 at batch 1, one thread, against torch.

    python -m bench.conv                       the table
    python -m bench.conv --json conv.json      the same figures as data
    python -m bench.conv --only 3x3            those whose names contain the text

Each is a torch module compiled as a network is, by the rules' schedule; its weights are packed when
it is compiled. `own` uses the widest vectors of this machine. On a machine with vectors of 512 bits
`256` is compiled for vectors of half that, and its roof is what these allow. Both sides are called
from Python with a torch tensor and make their result, so the cost of a call is in the figures.
Operations count two for each product and nothing for the rest. Names: window, channels, filters and
size of the image; `/2` is the stride; `b` is a bias, `r` a ReLU, `a` an addition of another tensor
before it.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

# isort: split
import bench.one_thread  # noqa: F401
from bench.compare import Row, Turns, arguments, compare, heading, multiply_adds, turns_of
from bench.harness import report

# isort: split
import torch
from torch import nn

from tensorc.graph.compile import compile
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
    return {"own": host, "256": Target.parse("cpu:host;vector_bits=256")}


def measure(shape: Shape, turns: Turns) -> list[Row]:
    module = Convolution(shape).eval()
    inputs = [torch.randn(1, shape.channels, shape.size, shape.size)]
    if "a" in shape.ending:
        out = -(-shape.size // shape.stride)
        inputs.append(torch.randn(1, shape.filters, out, out))
    ours = {}
    for name, target in targets().items():
        compiled = compile(module, tuple(inputs), target)
        torch.testing.assert_close(compiled(*inputs), module(*inputs), rtol=1e-3, atol=1e-3)
        run = lambda compiled=compiled: compiled(*inputs)  # noqa: E731
        ours[name] = (run, multiply_adds(target.vector_bits))
    peers = {"torch": lambda: module(*inputs)}
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
