"""What each level of optimisation costs to compile and gives to run.

    python -m bench.levels                        the table
    python -m bench.levels --json levels.json     the same figures as data

`tile` is a register-tiled matmul as a schedule makes it: packed operands, accumulators in stack
slots, the inner loop unrolled, every address computed anew from the loop variables. `nest` is the
matmul before any schedule, three loops that accumulate in memory. Both are one-threaded, and `peak`
is the share of this machine's multiply-adds as bench.peak measures them in the same minute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from bench.harness import alternate, arguments, report
from bench.peak import fma_peak
from tensorc.codegen.jit import CompiledModule, Optimisation, compile_module
from tensorc.target import Target

ROWS, VECTORS, DEPTH, UNROLL = 6, 2, 256, 8
TILES = 10
SIDE = 128


@dataclass(slots=True)
class Text:
    """LLVM text under construction: lines, and a fresh name for every value."""

    lines: list[str] = field(default_factory=list)
    block: str = "entry"

    def value(self, operation: str) -> str:
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def do(self, operation: str) -> None:
        self.lines.append(f"  {operation}")

    def index(self, *terms: tuple[str, int]) -> str:
        """The sum of variable times factor over all terms; a variable of "1" is a constant."""
        total = "0"
        for variable, factor in terms:
            product = self.value(f"mul i64 {variable}, {factor}")
            total = self.value(f"add i64 {total}, {product}")
        return total

    def pointer(self, base: str, *terms: tuple[str, int]) -> str:
        return self.value(f"getelementptr float, ptr {base}, i64 {self.index(*terms)}")

    def loop(self, name: str, extent: int, step: int, body: Callable[[str], None]) -> None:
        """A loop that tests before its body, as every generated one does."""
        before, variable = self.block, f"%{name}"
        self.do(f"br label %{name}.head")
        self.lines.append(f"{name}.head:")
        place = len(self.lines)
        self.lines.append("")
        more = self.value(f"icmp slt i64 {variable}, {extent}")
        self.do(f"br i1 {more}, label %{name}.body, label %{name}.exit")
        self.lines.append(f"{name}.body:")
        self.block = f"{name}.body"
        body(variable)
        advanced = self.value(f"add i64 {variable}, {step}")
        self.do(f"br label %{name}.head")
        self.lines[place] = f"  {variable} = phi i64 [0, %{before}], [{advanced}, %{self.block}]"
        self.lines.append(f"{name}.exit:")
        self.block = f"{name}.exit"

    def function(self, name: str) -> str:
        body = "\n".join(self.lines)
        return (
            f"define i32 @{name}(ptr noalias %A, ptr noalias %B, ptr noalias %C) nounwind {{\n"
            f"entry:\n{body}\n  ret i32 0\n}}\n"
        )


def tile_text(lanes: int) -> str:
    """C[TILES * ROWS, VECTORS * lanes] += A * B over DEPTH, A and B packed."""
    vector, width, text = f"<{lanes} x float>", lanes * VECTORS, Text()
    places = [(r, u) for r in range(ROWS) for u in range(VECTORS)]
    for r, u in places:
        text.do(f"%acc.{r}.{u} = alloca {vector}, align 64")

    def step(k: str, i: str) -> None:
        row = [
            text.value(
                f"load {vector}, ptr {text.pointer('%B', (k, width), ('1', u * lanes))}, align 4"
            )
            for u in range(VECTORS)
        ]
        for r in range(ROWS):
            a = text.pointer("%A", (i, DEPTH * ROWS), (k, ROWS), ("1", r))
            scalar = text.value(f"load float, ptr {a}, align 4")
            one = text.value(f"insertelement {vector} poison, float {scalar}, i64 0")
            splat = text.value(
                f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer"
            )
            for u in range(VECTORS):
                old = text.value(f"load {vector}, ptr %acc.{r}.{u}")
                product = text.value(f"fmul contract {vector} {splat}, {row[u]}")
                new = text.value(f"fadd contract {vector} {old}, {product}")
                text.do(f"store {vector} {new}, ptr %acc.{r}.{u}")

    def unrolled(k0: str, i: str) -> None:
        for number in range(UNROLL):
            step(text.value(f"add i64 {k0}, {number}"), i)

    def tile(i: str) -> None:
        for r, u in places:
            text.do(f"store {vector} zeroinitializer, ptr %acc.{r}.{u}")
        text.loop("k", DEPTH, UNROLL, lambda k0: unrolled(k0, i))
        for r, u in places:
            c = text.pointer("%C", (i, ROWS * width), ("1", r * width + u * lanes))
            old = text.value(f"load {vector}, ptr {c}, align 4")
            sum_ = text.value(f"load {vector}, ptr %acc.{r}.{u}")
            new = text.value(f"fadd contract {vector} {old}, {sum_}")
            text.do(f"store {vector} {new}, ptr {c}, align 4")

    text.loop("i", TILES, 1, tile)
    return text.function("tile")


def nest_text() -> str:
    """C[SIDE, SIDE] += A * B, one scalar multiply-add at a time, in memory."""
    text = Text()

    def statement(i: str, j: str, k: str) -> None:
        a = text.value(f"load float, ptr {text.pointer('%A', (i, SIDE), (k, 1))}")
        b = text.value(f"load float, ptr {text.pointer('%B', (k, SIDE), (j, 1))}")
        c = text.pointer("%C", (i, SIDE), (j, 1))
        old = text.value(f"load float, ptr {c}")
        product = text.value(f"fmul contract float {a}, {b}")
        new = text.value(f"fadd contract float {old}, {product}")
        text.do(f"store float {new}, ptr {c}")

    def inner(i: str, j: str) -> None:
        text.loop("k", SIDE, 1, lambda k: statement(i, j, k))

    text.loop("i", SIDE, 1, lambda i: text.loop("j", SIDE, 1, lambda j: inner(i, j)))
    return text.function("nest")


@dataclass(frozen=True, slots=True)
class Row:
    kernel: str
    lanes: int
    level: str
    compile_ms: float
    compile_median_ms: float
    gflops: float
    gflops_median: float
    peak: float


def measure(
    kernel: str, lanes: int, text: str, operations: int, peak: float, repeats: int
) -> list[Row]:
    target = Target.parse("cpu")
    levels: tuple[Optimisation, ...] = get_args(Optimisation)
    modules: dict[str, CompiledModule] = {}

    def compiled(level: Optimisation) -> None:
        modules[level] = compile_module(text, target, opt=level)

    compiling = alternate({level: lambda level=level: compiled(level) for level in levels}, repeats)
    memory = [(ctypes.c_float * (1 << 17))(*([0.5] * 100)) for _ in range(3)]
    functions = {
        level: ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(
            modules[level].address(kernel)
        )
        for level in levels
    }
    running = alternate(
        {name: lambda function=function: function(*memory) for name, function in functions.items()},
        repeats,
    )
    return [
        Row(
            kernel,
            lanes,
            level,
            compiling[level].best * 1e3,
            compiling[level].median * 1e3,
            operations / running[level].best * 1e-9,
            operations / running[level].median * 1e-9,
            operations / running[level].best / peak,
        )
        for level in levels
    ]


def main() -> None:
    options = arguments(__doc__).parse_args()
    target = Target.parse("cpu")
    peak = fma_peak(1, options.repeats)
    rows = []
    for lanes in sorted({8, target.lanes(32)} if target.vector_bits > 128 else {4}):
        operations = 2 * TILES * ROWS * DEPTH * VECTORS * lanes
        rows += measure("tile", lanes, tile_text(lanes), operations, peak, options.repeats)
    rows += measure("nest", 1, nest_text(), 2 * SIDE**3, peak, options.repeats)
    report(target.describe(), rows, options.json)


if __name__ == "__main__":
    main()
