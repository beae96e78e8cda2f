"""What a failed run-time check says."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.errors import TensorcError
from tensorc.ir.nodes import Func, Load
from tensorc.ir.print import print_expr
from tensorc.ir.walk import leaves, nodes, written
from tensorc.runtime.abi import shape_text


class RuntimeCheckError(TensorcError):
    """A check of a kernel that was built with checks=True failed; outputs are partly written.

    `statement` is the statement's name (or that of a loop whose bounds are computed), `buffer` the
    buffer that it was about to touch ("" for none), and `what` is wrong. `accesses` are those of
    the statement to the buffer, one of which failed, and the buffer's shape.
    """

    def __init__(self, function: str, statement: str, buffer: str, what: str, accesses: str = ""):
        self.function, self.statement = function, statement
        self.buffer, self.what, self.accesses = buffer, what, accesses
        where = f" ({accesses})" if accesses else ""
        super().__init__(f"{function}: {failure_text(statement, buffer, what)}{where}")


def failure_text(statement: str, buffer: str, what: str) -> str:
    """A failed check as one line, for every call of the function alike."""
    if not statement:
        return what
    place = f"statement `{statement}`" + (f", buffer `{buffer}`" if buffer else "")
    return f"{place}: {what}"


def accesses_text(func: Func, statement: str, buffer: str) -> str:
    """The accesses of a statement to a buffer, as the program writes them.

    Empty where the program has no such access: a lowered one may.
    """
    found = [load for load in _accesses(func, statement) if load.buffer.name == buffer]
    if not found:
        return ""
    texts = dict.fromkeys(print_expr(load) for load in found)
    return f"{', '.join(texts)}; {buffer} has the shape ({shape_text(found[0].buffer)})"


def _accesses(func: Func, statement: str) -> Iterator[Load]:
    """What statements of this name write and read."""
    for _, stmt in leaves(func):
        if stmt.name == statement:
            yield from (Load(buffer, stmt.indices) for buffer in written(stmt))
            yield from nodes(stmt, Load)
