"""The words of the language: what programs, machines and decisions are said in.

A *token* is a set of *pieces*, such as ("load", "buffer 2"). The model adds up what it has learned
of each, so that a token it has never seen is still readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, get_args

from tensorc.dtype import DType
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.nodes import BinaryOp, LoopKind, Mode, Scope, UnaryOp
from tensorc.space.templates.cpu import TEMPLATES

Token: TypeAlias = tuple[str, ...]

DEPTH = 32
"""Loops around a statement, at most."""
NAMES = 64
"""Buffers, and statements, of a program, at most."""
QUALITIES = 8
"""Bins of how good a program is, the last one the best."""

PROGRAM = (
    "buffer", "scalar", "extent", "spatial", "reduction", "loop", "if", "sequence", "allocate",
    "store", "reduce", "into", "at", "load", "constant", "cast", "select", "minus", "fraction",
    "infinity", "nan",
)  # fmt: skip
MACHINE = ("lanes", "registers", "cores", "threads", "l1", "l2", "l3", "fma", "no fma")
ARCHITECTURES = ("x86_64", "aarch64", "another architecture")

OPERATORS = (*get_args(UnaryOp), *get_args(BinaryOp))

KINDS: Mapping[str, tuple[str, ...]] = {
    "template": tuple(TEMPLATES),
    "vector": (),
    "width": (),
    "parts": (),
    "rows": (),
    "unroll": (),
    "tile": (),
    "chunks": (),
    "block": (),
    "join": (),
    "order": ("vector first", "vector last", "blocks first", "pixels first"),
    "pack": ("none", "panel", "block"),
    "place": ("inline", "apart"),
    "level": (),
    "parallel": ("none", "rows", "batch"),
    "prefetch": ("none", "ahead"),
    "tail": ("guard", "shift", "pad"),
}
"""The kinds of decisions, and the options of each that are words; others are numbers or axes."""


def words() -> tuple[str, ...]:
    """Every piece of programs, machines and decisions that is no number, in a fixed order."""
    return (
        *PROGRAM,
        *(f"operator {name}" for name in OPERATORS),
        *(f"combine {name}" for name in COMBINERS),
        *(f"type {dtype}" for dtype in DType),
        *(f"mode {mode}" for mode in get_args(Mode)),
        *(f"scope {scope}" for scope in get_args(Scope)),
        *(f"kind {kind}" for kind in get_args(LoopKind)),
        *(f"level {n}" for n in range(DEPTH)),
        *(f"buffer {n}" for n in range(NAMES)),
        *(f"statement {n}" for n in range(NAMES)),
        *MACHINE,
        *ARCHITECTURES,
        *(f"quality {n}" for n in range(QUALITIES)),
        "quality unknown",
        *(f"decide {kind}" for kind in KINDS),
        *dict.fromkeys(f"option {word}" for found in KINDS.values() for word in found),
        *(f"ask {kind}" for kind in KINDS),
        *(f"ask level {n}" for n in range(DEPTH)),
        *(f"ask buffer {n}" for n in range(NAMES)),
        *(f"ask statement {n}" for n in range(NAMES)),
        "end",
    )
