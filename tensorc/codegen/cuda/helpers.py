"""The device functions that generated CUDA C++ calls, each written only where it is used.

They need no header: NVRTC knows the intrinsics of its compiler, and half precision is a 16-bit
integer in memory and a float in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tensorc.analysis.tensor_cores import INSTRUCTIONS, Instruction
from tensorc.dtype import DType

_DEVICE = "static __device__ __forceinline__"


@dataclass(frozen=True, slots=True)
class Helper:
    """The text of a function, and the others that it calls."""

    text: str
    needs: tuple[str, ...] = ()


def texts(names: Iterable[str]) -> Iterator[str]:
    """The text of the helpers and of all that they need, each before its first use."""
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting.extend(HELPERS[name].needs)
    for name, helper in HELPERS.items():
        if name in wanted:
            yield helper.text.replace("DEVICE", _DEVICE).strip()


def _product(name: str, instruction: Instruction) -> Helper:
    """c += a * b of a warp's matrices; `a` and `b` hold the thread's registers of them."""
    _, shape, kind = name.split("_")
    operand = {"i8": "s8"}.get(kind, kind)
    sums, letter, held = ("float", "f", "f32") if instruction.result is DType.F32 else (
        "int", "r", "s32"
    )  # fmt: skip
    count = instruction.depth // (4 * instruction.packed)
    numbers = [f"%{n}" for n in range(4 + 3 * count)]
    a, b = numbers[4 : 4 + 2 * count], numbers[4 + 2 * count :]
    c = ", ".join(numbers[:4])
    text = f"mma.sync.aligned.{shape}.row.col.{held}.{operand}.{operand}.{held} "
    text += f"{{{c}}}, {{{', '.join(a)}}}, {{{', '.join(b)}}}, {{{c}}};"
    outputs = ", ".join(f'"+{letter}"(c{n})' for n in range(4))
    inputs = [f'"r"(a[{n}])' for n in range(2 * count)] + [f'"r"(b[{n}])' for n in range(count)]
    parameters = ", ".join(f"{sums} &c{n}" for n in range(4))
    return Helper(f"""
DEVICE void tc_{name}({parameters}, const unsigned *a, const unsigned *b) {{
    asm volatile("{text}"
                 : {outputs} : {", ".join(inputs)});
}}
""")


def _matrices(count: int, turned: bool) -> Helper:
    """`count` matrices of 8 rows of 16 bytes each, of which a thread gives the place of one."""
    to = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"=r"(to[{n}])' for n in range(count))
    trans = ".trans" if turned else ""
    return Helper(f"""
DEVICE void tc_matrices_{count}{"_turned" if turned else ""}(unsigned *to, const void *row) {{
    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{to}}}, [%{count}];"
                 : {outputs} : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}}
""")


# In an order in which each stands behind those that it needs.
HELPERS: Mapping[str, Helper] = {
    "tc_vec": Helper("""
// N neighbours that are moved as one, aligned to their whole size.
template <typename T, int N> struct alignas(sizeof(T) * N) tc_vec { T lane[N]; };
"""),
    "tc_copy": Helper("""
// N bytes from global to shared memory, done when the thread has waited for them.
template <int N> DEVICE void tc_copy(void *to, const void *from) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    const size_t source = __cvta_generic_to_global(from);
    if (N == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(place), "l"(source) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     :: "r"(place), "l"(source), "n"(N) : "memory");
    }
}
"""),
    "tc_commit": Helper("""
// The copies that the thread has begun since it did this last are a group.
DEVICE void tc_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
"""),
    "tc_wait": Helper("""
// Until all but the last N groups are copied.
template <int N> DEVICE void tc_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
"""),
    **{f"tc_{name}": _product(name, found) for name, found in INSTRUCTIONS.items()},
    **{f"tc_matrices_{count}": _matrices(count, turned=False) for count in (1, 2, 4)},
    **{f"tc_matrices_{count}_turned": _matrices(count, turned=True) for count in (1, 2, 4)},
    "tc_infinity": Helper("""
DEVICE float tc_infinity() { return __int_as_float(0x7f800000); }
"""),
    "tc_nan": Helper("""
DEVICE float tc_nan() { return __int_as_float(0x7fc00000); }
"""),
    "tc_f16": Helper("""
// The value of a half, and the half nearest to a value, ties to even.
DEVICE float tc_f16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
"""),
    "tc_to_f16": Helper("""
DEVICE unsigned short tc_to_f16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
"""),
    "tc_round_f16": Helper(
        """
DEVICE float tc_round_f16(float value) { return tc_f16(tc_to_f16(value)); }
""",
        ("tc_f16", "tc_to_f16"),
    ),
    "tc_bf16": Helper("""
// A bf16 is the upper half of a float.
DEVICE float tc_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
"""),
    "tc_to_bf16": Helper("""
DEVICE unsigned short tc_to_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if (value != value) return (unsigned short)((bits >> 16) | 0x40u);
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
"""),
    "tc_round_bf16": Helper(
        """
DEVICE float tc_round_bf16(float value) { return tc_bf16(tc_to_bf16(value)); }
""",
        ("tc_bf16", "tc_to_bf16"),
    ),
    "tc_odd": Helper("""
// Rounded so that the last bit tells of what was lost: rounding again rounds once in effect.
DEVICE float tc_odd(double value) {
    float near = __double2float_rz(value);
    return (double)near == value ? near : __int_as_float(__float_as_int(near) | 1);
}
"""),
    "tc_odd_integer": Helper("""
// As a double; of what that cannot hold, 11 bits are rounded to odd.
DEVICE double tc_odd_integer(long long value) {
    if (-(1ll << 53) <= value && value <= 1ll << 53) return (double)value;
    return (double)((value & ~2047ll) | ((value & 2047ll) != 0 ? 2048ll : 0ll));
}
"""),
    "tc_min": Helper("""
template <typename T> DEVICE T tc_min(T a, T b) { return b < a ? b : a; }
"""),
    "tc_max": Helper("""
template <typename T> DEVICE T tc_max(T a, T b) { return a < b ? b : a; }
"""),
    "tc_fmin": Helper("""
// NaN wins, and -0 is less than 0.
DEVICE float tc_fmin(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }
"""),
    "tc_fmin_f64": Helper("""
DEVICE double tc_fmin_f64(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }
"""),
    "tc_fmax": Helper("""
DEVICE float tc_fmax(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }
"""),
    "tc_fmax_f64": Helper("""
DEVICE double tc_fmax_f64(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }
"""),
    "tc_abs": Helper("""
template <typename T> DEVICE T tc_abs(T a) { return a < 0 ? (T)(0ull - (unsigned long long)a) : a; }
"""),
    "tc_truncdiv": Helper("""
// x / 0 is 0, and the least number divided by -1 is itself.
template <typename T> DEVICE T tc_truncdiv(T a, T b) {
    if (b == 0) return 0;
    return b == (T)-1 && b < 0 ? (T)(0ull - (unsigned long long)a) : (T)(a / b);
}
"""),
    "tc_truncmod": Helper("""
template <typename T> DEVICE T tc_truncmod(T a, T b) {
    if (b == 0) return a;
    return b == (T)-1 && b < 0 ? (T)0 : (T)(a % b);
}
"""),
    "tc_floordiv": Helper(
        """
template <typename T> DEVICE T tc_floordiv(T a, T b) {
    T rest = tc_truncmod(a, b);
    return tc_truncdiv(a, b) - (b != 0 && rest != 0 && (rest < 0) != (b < 0));
}
""",
        ("tc_truncdiv", "tc_truncmod"),
    ),
    "tc_floormod": Helper(
        """
template <typename T> DEVICE T tc_floormod(T a, T b) {
    T rest = tc_truncmod(a, b);
    return b != 0 && rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
}
""",
        ("tc_truncmod",),
    ),
    "tc_sigmoid": Helper("""
DEVICE float tc_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
"""),
    "tc_sigmoid_f64": Helper("""
DEVICE double tc_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
"""),
    "tc_clamped": Helper("""
// Truncated and saturated to low ... high, which a double holds exactly; NaN gives 0.
template <typename T> DEVICE T tc_clamped(double x, double low, double high) {
    return x != x ? (T)0 : (T)fmin(fmax(x, low), high);
}
"""),
    "tc_to_i64": Helper("""
DEVICE long long tc_to_i64(double x) { return x != x ? 0ll : __double2ll_rz(x); }
"""),
}
