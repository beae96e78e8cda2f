"""What a program is compiled for: an instruction set, its vector unit and the caches around it.

A `Target` is plain data. `Target.parse("cpu")` is the machine this process runs on; every other
text gives the same target on every machine, so that it can be part of a cache key or of a record.

    cpu                                             this machine
    cpu:x86-64-v3                                   a level of the x86-64 psABI
    cpu:znver3;cores=16;l3=32M                      a named processor, with some facts corrected
    cpu:generic;triple=aarch64-linux-gnu            another architecture
    cpu:x86-64-v4;features=-avx512fp16;vector_bits=256
    cuda:sm_90                                      the devices of an architecture
    cuda:RTX 4090                                   a device by its name
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args

from tensorc.errors import TargetError
from tensorc.target import devices, host
from tensorc.target.processors import (
    VECTOR_BITS,
    architecture_of,
    named,
    refusal,
    vector_unit,
    with_features,
)

__all__ = ["Target"]

Kind = Literal["cpu", "cuda"]
KIB, MIB = 1024, 1024 * 1024
ELEMENT_BITS = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Target:
    """One machine, as far as the compiler needs to know it.

    Attributes:
        kind: "cpu" or "cuda".
        triple: LLVM's name of the architecture, system and ABI; "" for cuda.
        cpu: LLVM's name of the processor, which also selects its scheduling model; for cuda the
            architecture, such as "sm_90".
        features: sorted LLVM feature names; "-name" is one that the processor's name may imply
            and this target lacks (a virtual machine can hide features).
        vector_bits: width of the widest vector register used: 128, 256 or 512; for cuda of the
            widest access to memory.
        vector_registers: how many of them there are; for cuda in one thread.
        fma: whether a fused multiply-add is one instruction.
        cores: processors that one program may use; for cuda the multiprocessors.
        l1, l2, l3: bytes of data cache; l1 and l2 of one core, l3 of the machine, 0 if none. For
            cuda l1 is that of a multiprocessor, l2 that of the device.
        alignment: bytes to which the runtime aligns its own buffers.
        limits: sorted (name, value) pairs of a device's hard limits, such as
            ("threads_per_block", 1024).
    """

    kind: Kind
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    fma: bool = False
    cores: int = 4
    l1: int = 32 * KIB
    l2: int = 1 * MIB
    l3: int = 16 * MIB
    alignment: int = 64
    limits: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that no machine has.

        Raises:
            TargetError: names the field, its value and what is legal instead.
        """
        if self.kind not in get_args(Kind):
            raise refusal("kind", self.kind, get_args(Kind))
        if self.vector_bits not in VECTOR_BITS:
            raise refusal("vector_bits", self.vector_bits, VECTOR_BITS)
        for name in ("vector_registers", "cores", "l1", "l2", "alignment"):
            if getattr(self, name) < 1:
                raise refusal(name, getattr(self, name), ("a number from 1 on",))
        if self.l3 < 0:
            raise refusal("l3", self.l3, ("0 for none, or a number of bytes",))
        if self.kind == "cuda" and not devices.is_architecture(self.cpu):
            raise refusal("the architecture of a cuda device", self.cpu, ("sm_90 and its like",))
        if self.alignment & (self.alignment - 1):
            raise refusal("alignment", self.alignment, ("a power of two",))
        object.__setattr__(self, "features", tuple(sorted(set(self.features))))
        object.__setattr__(self, "limits", tuple(sorted(self.limits)))

    @classmethod
    def parse(cls, text: str | Target) -> Target:
        """The target that `text` describes (see the module's page), or `text` if it is one.

        Raises:
            TargetError: a part of the text is not understood; the message lists what is legal.
        """
        if isinstance(text, Target):
            return text
        if not isinstance(text, str):
            raise TargetError(f"a target is a text or a Target, not {type(text).__name__}")
        head, *options = (part.strip() for part in text.split(";"))
        kind, _, cpu = head.partition(":")
        if kind == "cuda":
            if options:
                raise refusal("an option of a cuda target", options[0], ("cuda:NAME",), text)
            return cls(**devices.facts(cpu.strip(), text))
        if kind != "cpu":
            raise refusal("the kind of target", kind, ("cpu", "cpu:NAME", "cuda:NAME"), text)
        settings = _settings(options, text)
        triple = str(settings.pop("triple", ""))
        if cpu not in ("", "host"):
            return _adjusted(cls(**named(cpu, triple, text)), settings)
        if triple:
            raise refusal("a triple without a processor", triple, ("cpu:NAME;triple=...",), text)
        return _adjusted(_this_machine(), settings)

    @property
    def architecture(self) -> str:
        """The architecture of the triple, by the one name that tensorc uses for it."""
        return architecture_of(self.triple)

    @property
    def llvm_features(self) -> str:
        """The features as LLVM wants them, such as "+avx2,-amx-fp8"."""
        absent = [name for name in self.features if name.startswith("-")]
        present = [f"+{name}" for name in self.features if not name.startswith("-")]
        # The absent ones last: LLVM reads in order, and a feature brings in those that it implies.
        return ",".join([*present, *absent])

    def has(self, feature: str) -> bool:
        return feature in self.features

    def lanes(self, dtype_bits: int) -> int:
        """How many elements of this many bits fill one vector register.

        Raises:
            TargetError: no element has that width.
        """
        if dtype_bits not in ELEMENT_BITS:
            raise refusal("the width of an element", dtype_bits, ELEMENT_BITS)
        return self.vector_bits // dtype_bits

    def limit(self, name: str) -> int:
        """A hard limit of the device.

        Raises:
            TargetError: this target states no such limit.
        """
        stated = dict(self.limits)
        if name not in stated:
            listing = ", ".join(stated) or "none"
            raise TargetError(
                f"the target {self.kind}:{self.cpu} does not state the limit {name!r}; it states"
                f" {listing}. Target.parse('cuda:NAME') states all that compiling for a device asks"
            )
        return stated[name]

    def missing_on(self, machine: Target) -> tuple[str, ...]:
        """What code for this target needs and `machine` lacks; empty if the code can run there."""
        if (self.kind, self.architecture) != (machine.kind, machine.architecture):
            return (f"{self.kind} {self.architecture or self.cpu}",)
        needed = (name for name in self.features if not name.startswith("-"))
        return tuple(name for name in needed if not machine.has(name))

    def describe(self) -> str:
        """One line for people."""
        if self.kind == "cuda":
            limits = ", ".join(f"{name} {value}" for name, value in self.limits)
            return f"cuda {self.cpu}" + (f": {limits}" if limits else "")
        fma = "with" if self.fma else "without"
        caches = ((1, self.l1), (2, self.l2), (3, self.l3))
        sizes = ", ".join(f"L{level} {_size(size)}" for level, size in caches if size)
        return (
            f"cpu {self.cpu} ({self.triple}): {self.vector_registers} vector registers of "
            f"{self.vector_bits} bits, {fma} fma, {self.cores} cores, {sizes}"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Target:
        """The target that `to_json` wrote.

        Raises:
            TargetError: the text is not JSON or not a target; the message names the field.
        """
        try:
            record = json.loads(text)
        except ValueError as error:
            raise TargetError(f"not a target: {error}") from None
        if not isinstance(record, dict):
            raise TargetError(f"not a target: {type(record).__name__} in place of an object")
        known = {field.name: field for field in fields(cls)}
        for name in record:
            if name not in known:
                raise refusal("the field", name, known)
        missing = [n for n, field in known.items() if field.default is MISSING and n not in record]
        if missing:
            raise TargetError(f"not a target: {', '.join(missing)} missing")
        return cls(**{name: _field(name, value) for name, value in record.items()})


def _field(name: str, value: Any) -> Any:
    """A field's value out of JSON, which has no tuples."""
    match name:
        case "kind" | "triple" | "cpu" if isinstance(value, str):
            return value
        case "fma" if isinstance(value, bool):
            return value
        case "features" if isinstance(value, list) and {str}.issuperset(map(type, value)):
            return tuple(value)
        case "limits" if isinstance(value, list) and all(map(_is_limit, value)):
            return tuple(map(tuple, value))
        case "kind" | "triple" | "cpu" | "fma" | "features" | "limits":
            raise refusal(f"the field {name}", value, ("what to_json writes",))
        case _ if type(value) is int:
            return value
    raise refusal(f"the field {name}", value, ("a whole number",))


def _is_limit(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [str, int]


def _size(count: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


@cache
def _this_machine() -> Target:
    return Target(**host.facts())


_SIZES = ("l1", "l2", "l3")
_OPTIONS = ("triple", "features", "cores", "vector_bits", "alignment", *_SIZES)


def _settings(parts: Iterable[str], text: str) -> dict[str, str | int]:
    """The options of a target's text, "name=value" each."""
    settings: dict[str, str | int] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _OPTIONS or not equals:
            raise refusal("an option", part, [f"{option}=..." for option in _OPTIONS], text)
        if name in settings:
            raise refusal("an option given twice", name, ("each option once",), text)
        settings[name] = value if name in ("triple", "features") else _number(name, value, text)
    return settings


def _number(name: str, value: str, text: str) -> int:
    unit = {"K": KIB, "M": MIB}.get(value[-1:].upper(), 1) if name in _SIZES else 1
    digits = value[:-1] if unit > 1 else value
    if not (digits.isascii() and digits.isdecimal()):
        legal = "a number of bytes, of KiB with K or of MiB with M"
        raise refusal(name, value, (legal if name in _SIZES else "a number",), text)
    return int(digits) * unit


def _adjusted(target: Target, settings: dict[str, str | int]) -> Target:
    """`target` with the options applied; new features decide the vector unit anew."""
    changes: dict[str, Any] = dict(settings)
    architecture = target.architecture
    if "features" in changes:
        have = with_features(architecture, target.features, str(changes["features"]))
        changes = {**vector_unit(architecture, have), **changes, "features": have}
    widest = vector_unit(architecture, changes.get("features", target.features))["vector_bits"]
    if changes.get("vector_bits", 0) > widest:
        legal = [bits for bits in VECTOR_BITS if bits <= widest]
        raise refusal(f"vector_bits of {target.cpu}", changes["vector_bits"], legal)
    return replace(target, **changes)
