"""Where an access stands in the program, and what is said when it has no meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tensorc.errors import InterpreterError


@dataclass(frozen=True, slots=True)
class Site:
    """An access in the text: its statement, its buffer and the loops around it, outermost first."""

    statement: str
    buffer: str
    loops: tuple[str, ...]

    def _fail(self, what: str, indices: tuple[int, ...], loops: tuple[int, ...]) -> NoReturn:
        place = ", ".join(map(str, indices)) or "()"
        where = ", ".join(f"{n} = {v}" for n, v in zip(self.loops, loops, strict=True))
        when = f" at {where}" if where else ""
        raise InterpreterError(
            f"statement `{self.statement}`{when}: {what.format(f'{self.buffer}[{place}]')}"
        )

    def out_of_bounds(
        self, indices: tuple[int, ...], shape: tuple[int, ...], loops: tuple[int, ...]
    ) -> NoReturn:
        extents = ", ".join(map(str, shape))
        self._fail(f"{{}} is out of bounds of shape ({extents})", indices, loops)

    def undefined(self, indices: tuple[int, ...], loops: tuple[int, ...]) -> NoReturn:
        self._fail("{} is read before it is written", indices, loops)

    def read_only(self, indices: tuple[int, ...], loops: tuple[int, ...]) -> NoReturn:
        self._fail('{} is written, but it belongs to an "in" or "const" parameter', indices, loops)
