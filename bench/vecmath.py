"""Accuracy and speed of the vector functions, and the C library's speed beside them.

    python -m bench.vecmath                           a sample of each function, and the times
    python -m bench.vecmath --exhaustive exp log      all 2^32 arguments of f32 (minutes each)
    python -m bench.vecmath --repeats 0 --json FILE   accuracy alone, as data

`ulp` is the largest error found, without and with fused multiply-adds, in units in the last place
of the exact result; `bound` is what `vecmath.FUNCTIONS` promises. Speed is that of a loop over
arrays in the cache; the loop over the C library's scalar function is compiled by LLVM too, and the
loops take turns. A cycle is the best latency of one integer instruction, measured beside them.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench.harness import alternate, arguments, table  # isort: split

import numpy as np
from numpy.typing import NDArray

from tensorc.codegen import vecmath
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.codegen.vecmath.builder import Builder, Vector
from tensorc.target import Target
from tests.codegen.vecmath_oracle import (
    ELEMENT,
    HOST,
    NUMPY_TYPE,
    Array,
    Loop,
    compile_loop,
    reference,
    sample,
    ulp_errors,
    vector_loop,
)

EXHAUSTIVE = ("exp", "log", "tanh", "erf", "sigmoid")
# Small enough for the temporary arrays of a comparison to stay in the cache.
CHUNK = 1 << 16
ELEMENTS = 1 << 14
CHAIN, CHAIN_ROUNDS = 64, 2000
# (processor that the code is for, bytes in a vector)
CODES = (("x86-64-v3", 32), ("x86-64-v4", 32), ("x86-64-v4", 64))
# Where each function is neither constant nor an identity.
RANGES = {
    "exp": [(-10, 10)],
    "exp2": [(-10, 10)],
    "expm1": [(-10, 10)],
    "log": [(1e-3, 1e3)],
    "log2": [(1e-3, 1e3)],
    "log1p": [(-0.9, 1e3)],
    "sigmoid": [(-10, 10)],
    "tanh": [(-4, 4)],
    "erf": [(-3, 3)],
    "sin": [(-100, 100)],
    "cos": [(-100, 100)],
    "sqrt": [(1e-3, 1e3)],
    "rsqrt": [(1e-3, 1e3)],
    "pow": [(1e-2, 1e2), (-5, 5)],
}


# --- accuracy -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest errors of one function, and where they are."""

    function: str
    dtype: str
    arguments: int
    bound: float
    ulp: float
    at: str
    ulp_fma: float
    at_fma: str


def measure_accuracy(name: str, dtype: str) -> Accuracy:
    """The largest errors in a sample of arguments."""
    inputs = sample(name, dtype)
    high, low = reference(name, dtype, *inputs)
    worst = [Worst(), Worst()]
    for loop, largest in zip(both_loops(name, dtype), worst, strict=True):
        largest.update(ulp_errors(loop(*inputs), high, low), inputs)
    return accuracy(name, dtype, high.size, worst)


def measure_all_arguments(name: str) -> Accuracy:
    """The largest errors of a function of one f32, over all arguments.

    The reference is the C library's f64 function, by NumPy where NumPy has it.
    """
    loops, exceeds = both_loops(name, "f32"), Screen()
    library = library_loop(name, "f64") if name == "erf" else None
    worst = [Worst(), Worst()]
    for start in range(0, 1 << 32, CHUNK):
        x = (np.arange(CHUNK, dtype=np.uint32) + np.uint32(start)).view(np.float32)
        high = reference(name, "f32", x)[0] if library is None else library(x)
        for loop, largest in zip(loops, worst, strict=True):
            got = loop(x)
            places = exceeds(got, high, largest.ulp)
            errors = ulp_errors(got[places], high[places], np.zeros(places.size))
            largest.update(errors, [x[places]])
    return accuracy(name, "f32", 1 << 32, worst)


@dataclass(slots=True)
class Worst:
    """The largest error so far, and its arguments."""

    ulp: float = -1.0
    at: str = ""

    def update(self, errors: Array, inputs: list[Array]) -> None:
        if errors.size and errors.max() > self.ulp:
            i = int(errors.argmax())
            self.ulp = float(errors[i])
            self.at = ", ".join(f"{x[i]:.9g}" for x in inputs)


def both_loops(name: str, dtype: str) -> list[Loop]:
    """Without and with fused multiply-adds, in vectors of 64 bytes."""
    lanes = 64 // np.dtype(NUMPY_TYPE[dtype]).itemsize
    return [vector_loop(name, dtype, lanes, fma) for fma in (False, True)]


def accuracy(name: str, dtype: str, count: int, worst: list[Worst]) -> Accuracy:
    bound = getattr(vecmath.FUNCTIONS[name].ulp, dtype)
    two, one = worst
    return Accuracy(name, dtype, count, bound, two.ulp, two.at, one.ulp, one.at)


class Screen:
    """Where a result may be in error by more than `least` ulp: a quick filter for `ulp_errors`.

    It passes whatever is not known to be near enough, infinite or NaN like the exact result.
    """

    def __init__(self) -> None:
        b = Builder("screen", 8, fma=False)
        got, high = Vector(b, "float", "%got"), Vector(b, "double", "%high")
        power = b.from_bits(b.bits(high) & (0x7FF << 52))
        ulp = b.at_least(power, 2.0**-126) * 2.0**-23
        error = b.absolute(b.convert("fpext", got, "double") - high) / ulp
        rounded = b.convert("fptrunc", high, "float")
        infinite = b.absolute(got).equals(np.inf) & got.equals(rounded)
        error = b.select(infinite | (got.is_nan() & high.is_nan()), 0.0, error)
        self.module = compile_module(self.text(b.lines, error.text), HOST)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
        self.entry = kind(self.module.address("screen"))
        self.errors = np.empty(CHUNK)

    @staticmethod
    def text(lines: list[str], error: str) -> str:
        body = "\n".join(lines)
        return f"""
define void @screen(ptr %x, ptr %y, ptr noalias %out, i64 %n) nounwind {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%next, %body]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr double, ptr %y, i64 %i
  %got = load <8 x float>, ptr %px, align 4
  %high = load <8 x double>, ptr %py, align 8
{body}
  %po = getelementptr double, ptr %out, i64 %i
  store <8 x double> {error}, ptr %po, align 8
  %next = add i64 %i, 8
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}}
"""

    def __call__(self, got: Array, high: Array, least: float) -> NDArray[np.intp]:
        self.entry(got.ctypes.data, high.ctypes.data, self.errors.ctypes.data, CHUNK)
        return np.flatnonzero(~(self.errors <= least))


# --- speed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    """Cycles an element, and how many times fewer than the C library takes; best and median."""

    function: str
    dtype: str
    cpu: str
    lanes: int
    best: float
    median: float
    library_best: float
    library_median: float
    best_ratio: float
    median_ratio: float


def library_loop(name: str, dtype: str) -> Loop:
    """A scalar loop over the C library."""
    scalar, suffix = ELEMENT[dtype], "f" if dtype == "f32" else ""
    arity = vecmath.FUNCTIONS[name].arity
    inner = {"sigmoid": "exp", "rsqrt": "sqrt"}.get(name, name) + suffix
    text = f"declare {scalar} @{inner}({', '.join([scalar] * arity)})\n"
    body = {
        "sigmoid": f"""
  %negative = fneg {scalar} %x
  %e = call {scalar} @{inner}({scalar} %negative)
  %denominator = fadd {scalar} %e, 1.0""",
        "rsqrt": f"\n  %denominator = call {scalar} @{inner}({scalar} %x)",
    }
    if name not in body:
        return compile_loop(text, inner, dtype, 1, arity, library=(inner,))
    text += f"""
define internal {scalar} @composed({scalar} %x) alwaysinline {{{body[name]}
  %result = fdiv {scalar} 1.0, %denominator
  ret {scalar} %result
}}
"""
    return compile_loop(text, "composed", dtype, 1, arity, library=(inner,))


def chain_module() -> CompiledModule:
    """`chain`: CHAIN_ROUNDS times CHAIN pairs of instructions, each waiting for the one before.

    No operand is constant: some processors add a constant in no time.
    """
    pairs = "\n".join(
        f"  %s{i} = xor i64 %v{i}, %a\n  %v{i + 1} = add i64 %s{i}, %b" for i in range(CHAIN)
    )
    text = f"""
define i64 @chain(i64 %a, i64 %b) nounwind {{
entry:
  br label %body
body:
  %v0 = phi i64 [0, %entry], [%v{CHAIN}, %body]
  %i = phi i64 [0, %entry], [%next, %body]
{pairs}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {CHAIN_ROUNDS}
  br i1 %more, label %body, label %end
end:
  ret i64 %v{CHAIN}
}}
"""
    return compile_module(text, HOST)


def codes() -> list[tuple[Target, int]]:
    """The codes of CODES that this machine can run."""
    targets = [(Target.parse(f"cpu:{cpu}"), width) for cpu, width in CODES]
    return [(target, width) for target, width in targets if not target.missing_on(HOST)]


def measure_speed(name: str, dtype: str, repeats: int) -> list[Speed]:
    generator = np.random.default_rng(0)
    kind = NUMPY_TYPE[dtype]
    inputs = [generator.uniform(*ends, ELEMENTS).astype(kind) for ends in RANGES[name]]
    out = np.empty_like(inputs[0])
    pointers = [a.ctypes.data for a in (*inputs, out)]
    chain_code = chain_module()
    chain = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
        chain_code.address("chain")
    )
    loops = {"library": library_loop(name, dtype)}
    for target, width in codes():
        lanes = width // out.itemsize
        loops[f"{target.cpu} {lanes}"] = vector_loop(name, dtype, lanes, True, target)
    cases: dict[str, Callable[[], object]] = {
        label: lambda loop=loop: loop.entry(*pointers, ELEMENTS // loop.lanes)
        for label, loop in loops.items()
    }
    timings = alternate({**cases, "chain": lambda: chain(85, 51)}, repeats)
    steps = 2 * CHAIN * CHAIN_ROUNDS
    cycle = timings["chain"].best / steps * ELEMENTS
    library = timings["library"]
    rows = []
    for label in list(loops)[1:]:
        cpu, lanes = label.split()
        timing = timings[label]
        rows.append(
            Speed(
                name,
                dtype,
                cpu,
                int(lanes),
                timing.best / cycle,
                timing.median / cycle,
                library.best / cycle,
                library.median / cycle,
                timing.best_ratio,
                timing.median_ratio,
            )
        )
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="functions; all by default")
    parser.add_argument("--exhaustive", action="store_true", help="all f32 arguments")
    options = parser.parse_args()
    names = options.names or list(EXHAUSTIVE if options.exhaustive else vecmath.FUNCTIONS)
    for name in names:
        vecmath.symbol(name, "f32", 1)
    if options.exhaustive:
        errors = [measure_all_arguments(name) for name in names]
    else:
        errors = [measure_accuracy(name, dtype) for dtype in NUMPY_TYPE for name in names]
    print(table(errors))
    speed: list[Speed] = []
    if options.repeats:
        for dtype in NUMPY_TYPE:
            for name in names:
                speed += measure_speed(name, dtype, options.repeats)
        print(HOST.describe(), table(speed), sep="\n")
    if options.json:
        rows = {"accuracy": errors, "speed": speed}
        record = {key: [asdict(row) for row in value] for key, value in rows.items()}
        record_text = json.dumps({"machine": HOST.describe(), **record}, indent=1)
        options.json.write_text(record_text + "\n")


if __name__ == "__main__":
    main()
