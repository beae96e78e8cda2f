"""Why a step is refused, as data: a code, a kind, places to underline, and a witness."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorc.errors import Kind
from tensorc.ir.walk import Path

CODES = {
    "REF001": "there is no loop of this name",
    "REF002": "the name was consumed by an earlier step",
    "REF003": "there is no statement of this name",
    "REF004": "there is no buffer of this name",
    "ARG001": "an argument is out of its domain",
    "STR001": "the loops are not perfectly nested",
    "STR002": "the loop does not enclose the statement",
    "STR003": "the loop is not serial any more",
    "STR004": "the extent is not a constant",
    "STR005": "the loops are not adjacent siblings",
    "STR006": "the bounds of one loop depend on the other",
    "STR007": "the statement has not the form that the step rewrites",
    "STR008": "the step would change nothing",
    "STR009": "bound loops would not nest as the grid does",
    "TGT001": "a limit of the target would be exceeded",
    "DEP001": "iterations of a parallel loop would touch one element",
    "DEP002": "a reordering would reverse a dependence",
    "DEP003": "lanes of a vector would reverse a dependence",
    "DEP004": "a fission would reverse a dependence",
    "DEP005": "a merge would reverse a dependence",
    "DEP006": "a moved statement would reverse a dependence",
    "DEP007": "a value would pass between threads with no barrier in between",
    "RGN001": "an element would be read that has not been written",
    "RGN002": "a value would be read after it has been overwritten",
    "RGN003": "an instance would be lost",
    "RGN004": "the buffer is seen from outside",
    "FLT001": "a reduction would be reassociated under strict_float",
    "UNS001": "the verdict rests on an access or bound that is not affine",
    "UNS002": "the integer solver reached its operation limit",
    "UNS003": "the region has no form that the step can emit",
}


@dataclass(frozen=True, slots=True)
class Witness:
    """Concrete evidence: values of the sizes and two instances (statement, loop vector).

    `text` says in words what happens; the instances let a test replay it in the access log.
    """

    sizes: tuple[tuple[str, int], ...]
    source: tuple[str, tuple[tuple[str, int], ...]]
    sink: tuple[str, tuple[tuple[str, int], ...]]
    element: tuple[str, tuple[int, ...]]
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to underline in the current nest, with an optional remark after the underline."""

    path: Path
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason to refuse a step. `alternatives` are filled in when an error is raised."""

    code: str
    kind: Kind
    message: str
    marks: tuple[Mark, ...] = ()
    witness: Witness | None = None
    advice: str | None = None
    alternatives: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unknown violation code {self.code}")


def malformed(code: str, message: str, *paths: Path, advice: str | None = None) -> Violation:
    """A step that does not fit the program's structure: neither illegal nor unsupported."""
    return Violation(code, Kind.MALFORMED, message, tuple(Mark(p) for p in paths), advice=advice)


def unsupported(code: str, message: str, *paths: Path, advice: str | None = None) -> Violation:
    """A step whose legality is not decided."""
    return Violation(code, Kind.UNSUPPORTED, message, tuple(Mark(p) for p in paths), advice=advice)
