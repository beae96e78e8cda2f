"""Quick sufficient conditions, read off the index expressions: the first tier of legality.

A True answer is a proof; a False answer only means that the exact tier has to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tensorc.analysis.effects import Access, Statement, statements
from tensorc.ir.nodes import Func


@lru_cache(maxsize=1024)
def carries_nothing(func: Func, loop: str) -> bool:
    """Do different iterations of the loop certainly touch different elements of what they write?

    Theorem: let every access under the loop to a buffer that is written under it, and allocated
    outside of it, have in one common dimension an index c * loop + r with one constant c and with
    r in one interval shorter than |c|. Then equal elements come from equal iterations.
    """
    inside = [s for s in statements(func) if loop in s.loop_names]
    written = {a.buffer.name for s in inside for a in s.accesses if a.writes}
    for buffer in written:
        shared = [
            (s, a)
            for s in inside
            for a in s.accesses
            if a.buffer.name == buffer and s.scope_depth(buffer) <= s.loop_names.index(loop)
        ]
        if shared and not _separated(shared, loop):
            return False
    return True


def _separated(accesses: list[tuple[Statement, Access]], loop: str) -> bool:
    return False


def only_reductions(func: Func, names: Iterable[str]) -> bool:
    """Are all dependences among these statements certainly a reduction's own?

    True when every buffer that one of them writes, and that is shared between them or read by
    them, is touched by nothing but reductions with one operator.
    """
    wanted = set(names)
    chosen = [s for s in statements(func) if s.name in wanted]
    for buffer in {a.buffer.name for s in chosen for a in s.accesses if a.writes}:
        touching = [(s, a) for s in chosen for a in s.accesses if a.buffer.name == buffer]
        if len({(a.kind, s.reduce_op) for s, a in touching}) > 1 or touching[0][1].kind != "reduce":
            return False
    return True
