"""Processors by name: their features, and what those say about the vector unit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tensorc.errors import TargetError

VECTOR_BITS = (128, 256, 512)


def refusal(what: str, value: object, legal: Iterable[object], text: str = "") -> TargetError:
    """The error for a value that cannot be; `text` is the target's text that holds it."""
    where = f"{text!r}: " if text else ""
    listing = ", ".join(str(entry) for entry in legal)
    return TargetError(f"{where}{what} cannot be {value!r}; legal here: {listing or 'none'}")


# What each level of the x86-64 psABI adds to the one below.
_X86_LEVELS = (
    ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2"),
    ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
)
_ICE_LAKE = (
    *("avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni"),
    *("avx512vpopcntdq", "gfni", "vaes", "vpclmulqdq"),
)
_SAPPHIRE_RAPIDS = (*_ICE_LAKE, "avx512bf16", "avx512fp16", "avxvnni")

# A processor: its level of the psABI and the vector features beyond it.
_X86_CPUS: dict[str, tuple[int, tuple[str, ...]]] = {
    "x86-64": (1, ()),
    "x86-64-v2": (2, ()),
    "x86-64-v3": (3, ()),
    "x86-64-v4": (4, ()),
    "nehalem": (2, ()),
    "sandybridge": (2, ("avx", "xsave")),
    "ivybridge": (2, ("avx", "f16c", "xsave")),
    "haswell": (3, ()),
    "broadwell": (3, ()),
    "skylake": (3, ()),
    "alderlake": (3, ("avxvnni", "gfni", "vaes", "vpclmulqdq")),
    "skylake-avx512": (4, ()),
    "cascadelake": (4, ("avx512vnni",)),
    "icelake-client": (4, _ICE_LAKE),
    "icelake-server": (4, _ICE_LAKE),
    "sapphirerapids": (4, _SAPPHIRE_RAPIDS),
    "emeraldrapids": (4, _SAPPHIRE_RAPIDS),
    "znver1": (3, ()),
    "znver2": (3, ()),
    "znver3": (3, ("vaes", "vpclmulqdq")),
    "znver4": (4, (*_ICE_LAKE, "avx512bf16")),
    "znver5": (4, (*_ICE_LAKE, "avx512bf16", "avx512vp2intersect", "avxvnni")),
}
_ARM_CPUS = (
    *("generic", "apple-m1", "apple-m2", "apple-m3", "apple-m4", "cortex-a53", "cortex-a72"),
    *("cortex-a76", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"),
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """What all processors of an architecture share.

    `cpus` maps our names to LLVM's; `features` are always there; `optional` are those that a
    target's text may add.
    """

    triple: str
    cpus: dict[str, str]
    features: tuple[str, ...]
    optional: tuple[str, ...] = ()
    vector_registers: int = 32
    fma: bool = True


ARCHITECTURES = {
    "x86_64": Architecture(
        "x86_64-unknown-linux-gnu",
        {"generic": "x86-64", **{name: name for name in _X86_CPUS}},
        _X86_LEVELS[0],
        (*_X86_LEVELS[1], *_X86_LEVELS[2], *_X86_LEVELS[3], *_SAPPHIRE_RAPIDS),
    ),
    "aarch64": Architecture(
        "aarch64-unknown-linux-gnu",
        {name: name for name in _ARM_CPUS},
        ("neon",),
        ("bf16", "dotprod", "fullfp16", "i8mm"),
    ),
    "riscv64": Architecture(
        "riscv64-unknown-linux-gnu", {"generic": "generic-rv64"}, ("a", "c", "d", "f", "m")
    ),
    "wasm32": Architecture(
        "wasm32-unknown-unknown", {"generic": "generic"}, ("simd128",), fma=False
    ),
}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture_of(triple: str) -> str:
    """The architecture of an LLVM triple, by the one name that tensorc uses for it."""
    first = triple.partition("-")[0].lower()
    return _ALIASES.get(first, first)


def named(cpu: str, triple: str, text: str) -> dict[str, Any]:
    """The facts of a processor's name, as arguments of `Target`.

    Without a triple the first architecture that knows the name is meant.

    Raises:
        TargetError: the processor or the triple's architecture is unknown.
    """
    if triple:
        architecture = architecture_of(triple)
        if architecture not in ARCHITECTURES:
            legal = (*ARCHITECTURES, *_ALIASES)
            raise refusal("the architecture of the triple", architecture, legal, text)
    else:
        owners = [name for name, entry in ARCHITECTURES.items() if cpu in entry.cpus]
        if not owners:
            known = [name for entry in ARCHITECTURES.values() for name in entry.cpus]
            raise refusal("the processor", cpu, ("host", *dict.fromkeys(known)), text)
        architecture = owners[0]
    entry = ARCHITECTURES[architecture]
    if cpu not in entry.cpus:
        raise refusal(f"the {architecture} processor", cpu, entry.cpus, text)
    features: tuple[str, ...] = entry.features
    if architecture == "x86_64":
        level, extra = _X86_CPUS[entry.cpus[cpu]]
        features = (*(name for names in _X86_LEVELS[:level] for name in names), *extra)
    return {
        "kind": "cpu",
        "triple": triple or entry.triple,
        "cpu": entry.cpus[cpu],
        "features": features,
        **vector_unit(architecture, features),
    }


def vector_unit(architecture: str, features: Iterable[str]) -> dict[str, Any]:
    """Width, count and fma of the vector registers that these features give."""
    if architecture != "x86_64":
        entry = ARCHITECTURES[architecture]
        return {
            "vector_bits": 128,
            "vector_registers": entry.vector_registers,
            "fma": entry.fma,
        }
    have = set(features)
    return {
        "vector_bits": 512 if "avx512f" in have else 256 if "avx" in have else 128,
        # avx512vl gives the narrower registers the same 32 names.
        "vector_registers": 32 if "avx512f" in have else 16,
        "fma": "fma" in have,
    }


# LLVM's implications among the vector features; each avx512 feature implies avx512f besides.
_IMPLIED = {
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avxvnni": ("avx2",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "vaes": ("avx",),
    "vpclmulqdq": ("avx",),
}


def _closure(feature: str) -> set[str]:
    """`feature` and all that it implies."""
    direct = _IMPLIED.get(feature, ())
    if feature.startswith("avx512") and feature != "avx512f":
        direct = ("avx512f",)
    return {feature}.union(*(_closure(name) for name in direct))


def with_features(architecture: str, features: Iterable[str], changes: str) -> tuple[str, ...]:
    """The features after "+name,-name,...", with all that each change implies.

    Raises:
        TargetError: a change has no sign, or the architecture has no such feature.
    """
    entry = ARCHITECTURES[architecture]
    have = set(features)
    known = {*entry.features, *entry.optional, *(name.lstrip("-") for name in have)}
    for signed in (part.strip() for part in changes.split(",")):
        sign, name = signed[:1], signed[1:]
        if sign not in ("+", "-"):
            raise refusal("a feature", signed, ("+name", "-name"))
        if name not in known:
            raise refusal(f"the {architecture} feature", name, sorted(known))
        if sign == "+":
            have |= _closure(name)
            have -= {f"-{implied}" for implied in _closure(name)}
        else:
            have = {other for other in have if name not in _closure(other)} | {f"-{name}"}
    return tuple(have)
