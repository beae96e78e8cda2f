"""The docstring of a Step, read as the specification that it is.

A docstring has a description; then `rewrite:`, with the nest before, the step, less indented, and
the nest after; then `legal when:`, with one condition a line, and what follows from them.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tensorc.schedule.step import Step


@dataclass(frozen=True, slots=True)
class Specification:
    """`conditions` are sentences with the codes that they are refused with; `remarks` follow."""

    primitive: str
    description: str
    before: str
    call: str
    after: str
    conditions: tuple[str, ...]
    remarks: str


def specification(step: type[Step]) -> Specification:
    """The parts of a Step's docstring. Raises ValueError where it does not have this form."""
    text = inspect.cleandoc(step.__doc__ or "")
    description, found, rest = text.partition("\nrewrite:\n")
    rewrite, also, legal = rest.partition("\nlegal when:\n")
    if not found or not also:
        raise ValueError(f"{step.primitive}: a rewrite and what is legal are expected")
    lines = rewrite.splitlines()
    calls = [n for n, x in enumerate(lines) if x.startswith("  ") and x[2:3] not in ("", " ")]
    if len(calls) != 1:
        raise ValueError(f"{step.primitive}: one step is expected between the two nests")
    at = calls[0]
    indented = [x for x in legal.splitlines() if x.startswith("    ")]
    remarks = [x for x in legal.splitlines() if not x.startswith("    ")]
    return Specification(
        step.primitive,
        description.strip(),
        textwrap.dedent("\n".join(lines[:at])).strip() + "\n",
        lines[at].strip(),
        textwrap.dedent("\n".join(lines[at + 1 :])).strip() + "\n",
        tuple(_conditions(indented)),
        "\n".join(remarks).strip(),
    )


def _conditions(lines: list[str]) -> Iterator[str]:
    """The conditions; one runs on where a line ends without the code that ends a condition."""
    whole = ""
    for line in lines:
        whole = f"{whole} {line.strip()}".strip()
        if whole.endswith(")"):
            yield whole
            whole = ""
    if whole:
        yield whole
