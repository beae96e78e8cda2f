"""What this machine can do: multiply-adds in registers, and bytes to and from each cache.

    python -m bench.peak                      the table
    python -m bench.peak --json peak.json     the same figures as data

`fma` is the roof of every kernel: independent chains of fused multiply-adds in registers, in f32,
with vectors of each width, counted as 2 operations each. `read` sums an array, `copy` is a = b and
`triad` is a = b + s * c; their bytes are those the program reads and writes, without what a cache
fetches on its own, and `kib` is all arrays together. With two workers each has half of the arrays.
All cases of one kernel take turns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness import Timing, alternate, arguments, report
from tensorc.codegen.jit import compile_module
from tensorc.runtime import parallel
from tensorc.target import Target

CHAINS = 12  # latency 4 times 2 units, and some to spare
FMA_ROUNDS = 20_000
ALIGNMENT = 64
UNROLL = 8  # accumulators of `read`: latency 4 times 2 loads
# Bytes that one sample of a memory kernel moves at least, by repeating the arrays.
SAMPLE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One case; `best` and `median` are in `unit`."""

    kernel: str
    bits: int
    workers: int
    kib: int
    best: float
    median: float
    unit: str


# --- multiply-adds ------------------------------------------------------------------------------


def fma_text(bits: int) -> str:
    """A loop body of the hook: FMA_ROUNDS rounds of CHAINS independent multiply-adds."""
    lanes = bits // 32
    vector = f"<{lanes} x float>"
    intrinsic = f"@llvm.fma.v{lanes}f32"
    chains = range(CHAINS)
    phis = "\n".join(
        f"  %x{c} = phi {vector} [splat (float {c}.0), %entry], [%y{c}, %loop]" for c in chains
    )
    steps = "\n".join(
        f"  %y{c} = call {vector} {intrinsic}({vector} %x{c}, {vector} %scale, {vector} %scale)"
        for c in chains
    )
    sums = "\n".join(f"  %s{c + 1} = fadd {vector} %s{c}, %y{c}" for c in chains)
    return f"""
declare {vector} {intrinsic}({vector}, {vector}, {vector})
define i32 @fma{bits}(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  %value = load float, ptr %ctx
  %one = insertelement {vector} poison, float %value, i64 0
  %scale = shufflevector {vector} %one, {vector} poison, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
{phis}
{steps}
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, {FMA_ROUNDS}
  br i1 %more, label %loop, label %exit
exit:
  %s0 = fadd {vector} %scale, %scale
{sums}
  %place = getelementptr {vector}, ptr %ctx, i64 %i
  %behind = getelementptr i8, ptr %place, i64 {ALIGNMENT}
  store {vector} %s{CHAINS}, ptr %behind, align 4
  ret i32 0
}}
"""


def fma_operations(bits: int) -> int:
    """Operations of one call of the loop body."""
    return 2 * CHAINS * FMA_ROUNDS * (bits // 32)


def widths(target: Target) -> list[int]:
    """The vector widths worth measuring, the narrower first."""
    return [256, 512] if target.vector_bits == 512 else [target.vector_bits]


def measure_fma(target: Target, workers: int, repeats: int) -> list[Row]:
    """Operations a second of all workers together."""
    module = compile_module("".join(map(fma_text, widths(target))), target)
    context = (ctypes.c_float * 1024)(0.5)
    cases = {
        bits: on_workers(module.address(f"fma{bits}"), ctypes.addressof(context), workers)
        for bits in widths(target)
    }
    timings = alternate({str(bits): case for bits, case in cases.items()}, repeats)
    return [
        _row("fma", int(bits), workers, 0, fma_operations(int(bits)) * workers, timing, "GFLOP/s")
        for bits, timing in timings.items()
    ]


def fma_peak(workers: int = 1, repeats: int = 30) -> float:
    """The highest operations a second of this machine, in f32: the roof for other benches."""
    rows = measure_fma(Target.parse("cpu"), workers, repeats)
    return max(row.best for row in rows) * 1e9


# --- memory -------------------------------------------------------------------------------------

# How many arrays each kernel goes through.
MEMORY = {"read": 1, "copy": 2, "triad": 3}


def memory_text(kernel: str, target: Target) -> str:
    """A loop body of the hook over the arrays whose addresses and length the context holds.

    The context is [a, b, c, bytes, times]; worker chunk i is the i-th run of `bytes` bytes.
    """
    lanes = target.lanes(32)
    vector, step = f"<{lanes} x float>", UNROLL * lanes * 4
    lines, sums = [], []
    for u in range(UNROLL):
        at = f"  %o{u} = add i64 %o, {u * lanes * 4}"
        lines.append(at)
        for name in "abc":
            lines.append(f"  %{name}{u} = getelementptr i8, ptr %{name}, i64 %o{u}")
        load = f"load {vector}, ptr"
        match kernel:
            case "read":
                lines.append(f"  %v{u} = {load} %a{u}, align 64")
                lines.append(f"  %t{u} = fadd {vector} %s{u}, %v{u}")
                sums.append(f"  %s{u} = phi {vector} [zeroinitializer, %again], [%t{u}, %loop]")
            case "copy":
                lines.append(f"  %v{u} = {load} %b{u}, align 64")
                lines.append(f"  store {vector} %v{u}, ptr %a{u}, align 64")
            case "triad":
                lines.append(f"  %v{u} = {load} %b{u}, align 64")
                lines.append(f"  %w{u} = {load} %c{u}, align 64")
                lines.append(f"  %m{u} = fmul contract {vector} %w{u}, splat (float 3.0)")
                lines.append(f"  %t{u} = fadd contract {vector} %v{u}, %m{u}")
                lines.append(f"  store {vector} %t{u}, ptr %a{u}, align 64")
    keep = [f"  store {vector} %t{u}, ptr %keep{u}, align 4" for u in range(UNROLL)]
    places = [
        f"  %keep{u} = getelementptr i8, ptr %kept, i64 {u * lanes * 4}" for u in range(UNROLL)
    ]
    tail = "\n".join(places + keep) if kernel == "read" else ""
    body, phis = "\n".join(lines), "\n".join(sums)
    return f"""
define i32 @{kernel}(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  %kept = alloca [{step} x i8], align 64
  %p1 = getelementptr i64, ptr %ctx, i64 1
  %p2 = getelementptr i64, ptr %ctx, i64 2
  %p3 = getelementptr i64, ptr %ctx, i64 3
  %p4 = getelementptr i64, ptr %ctx, i64 4
  %a.base = load ptr, ptr %ctx
  %b.base = load ptr, ptr %p1
  %c.base = load ptr, ptr %p2
  %bytes = load i64, ptr %p3
  %times = load i64, ptr %p4
  %first = mul i64 %i, %bytes
  %a = getelementptr i8, ptr %a.base, i64 %first
  %b = getelementptr i8, ptr %b.base, i64 %first
  %c = getelementptr i8, ptr %c.base, i64 %first
  br label %again
again:
  %k = phi i64 [0, %entry], [%k.next, %done]
  br label %loop
loop:
  %o = phi i64 [0, %again], [%o.next, %loop]
{phis}
{body}
  %o.next = add i64 %o, {step}
  %more = icmp slt i64 %o.next, %bytes
  br i1 %more, label %loop, label %done
done:
{tail}
  call void asm sideeffect "", "r,~{{memory}}"(ptr %kept)
  %k.next = add i64 %k, 1
  %another = icmp slt i64 %k.next, %times
  br i1 %another, label %again, label %exit
exit:
  ret i32 0
}}
"""


def sizes(target: Target) -> list[int]:
    """Bytes of all arrays together: half of each cache level, and well beyond the last.

    L3 counts 64 MiB at most: of a large server's one program gets a part only.
    """
    l3 = min(target.l3, 64 << 20)
    return sorted({size // 2 for size in (target.l1, target.l2, l3) if size} | {512 << 20})


def measure_memory(target: Target, kernel: str, workers: int, repeats: int) -> list[Row]:
    """Bytes a second of all workers together, one case for each size."""
    module = compile_module(memory_text(kernel, target), target)
    arrays = MEMORY[kernel]
    grain = UNROLL * target.vector_bits // 8 * workers
    largest = max(sizes(target)) // arrays
    storage = [ctypes.create_string_buffer(largest + 2 * ALIGNMENT) for _ in range(arrays)]
    bases = [-(-ctypes.addressof(block) // ALIGNMENT) * ALIGNMENT for block in storage]
    for base in bases:
        # Memory that nobody wrote is one page of zeros, which every cache holds.
        ctypes.memset(base, 1, largest)
    bases += bases[:1] * (3 - arrays)
    cases: dict[str, Callable[[], object]] = {}
    moved: dict[str, int] = {}
    contexts = []
    for size in sizes(target):
        part = max(size // arrays // grain, 1) * grain // workers
        total = part * workers * arrays
        times = max(1, SAMPLE_BYTES // total)
        context = (ctypes.c_int64 * 5)(*bases, part, times)
        contexts.append(context)
        label = str(total // 1024)
        cases[label] = on_workers(module.address(kernel), ctypes.addressof(context), workers)
        moved[label] = total * times
    timings = alternate(cases, repeats)
    return [
        _row(kernel, target.vector_bits, workers, int(label), moved[label], timing, "GB/s")
        for label, timing in timings.items()
    ]


def on_workers(body: int, context: int, workers: int) -> Callable[[], object]:
    """One chunk for each worker, through the hook, without a way through Python's settings."""
    hook = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        parallel.address()
    )

    def run() -> None:
        parallel.prepare(workers)
        hook(body, context, workers)

    return run


def _row(
    kernel: str, bits: int, workers: int, kib: int, count: int, timing: Timing, unit: str
) -> Row:
    best, median = (count / seconds / 1e9 for seconds in (timing.best, timing.median))
    return Row(kernel, bits, workers, kib, best, median, unit)


def main() -> None:
    options = arguments(__doc__).parse_args()
    target = Target.parse("cpu")
    rows = []
    for workers in sorted({1, min(2, target.cores)}):
        rows += measure_fma(target, workers, options.repeats)
    for kernel in MEMORY:
        for workers in sorted({1, min(2, target.cores)}):
            rows += measure_memory(target, kernel, workers, options.repeats)
    report(target.describe(), rows, options.json)


if __name__ == "__main__":
    main()
