"""Sending the accesses of a part of the nest to local copies."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.analysis import region
from tensorc.analysis.region import Box
from tensorc.ir.nodes import Buffer, Load, Node, Reduce, Stmt, Store
from tensorc.ir.walk import nodes, replace, rewrite


def combined_with(stmt: Stmt, names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, and behind them the buffers that some reduction in `stmt` combines with these."""
    known = dict.fromkeys(names)
    for reduce in nodes(stmt, Reduce):
        group = [b.name for b in reduce.buffers]
        if any(name in known for name in group):
            known |= dict.fromkeys(group)
    return tuple(known)


def redirect(stmt: Stmt, local: Mapping[str, Buffer], box: Box) -> Stmt:
    """`stmt` with every access to a buffer of `local` made one to its copy, relative to the box."""

    def change(found: Node) -> Node | None:
        match found:
            case Load(buffer=buffer, indices=indices) if buffer.name in local:
                return Load(local[buffer.name], region.offset(indices, box))
            case Store(buffer=buffer, indices=indices) if buffer.name in local:
                moved = region.offset(indices, box)
                return replace(found, buffer=local[buffer.name], indices=moved)
            case Reduce(buffers=group, indices=indices) if any(b.name in local for b in group):
                changed = tuple(local.get(b.name, b) for b in group)
                return replace(found, buffers=changed, indices=region.offset(indices, box))
        return None

    return rewrite(stmt, change)
