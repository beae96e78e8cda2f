"""Moving a stage into the body of a loop, and settling the buffers that it used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import Model, condition, model, operation_limit, term
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.emit import condition_of, loop_bounds
from tensorc.analysis.motion import Motion, flows, placements, self_contained
from tensorc.ir.arith import FALSE, add, both, constant, index, sub
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Alloc, Expr, For, Func, If, Node, Reduce, Seq, Stmt, Store, Var
from tensorc.ir.walk import (
    Leaf,
    Path,
    at,
    nodes,
    normalised,
    replace,
    replace_at,
    rewrite,
    seq,
    substitute,
    variables,
)
from tensorc.schedule.cached import combined_with, redirect
from tensorc.schedule.rewrite import stmt_at, wrap_if
from tensorc.schedule.state import allocations


@dataclass(frozen=True, slots=True)
class Stage:
    """The subtree at `path` that moves, and the child next to which it goes."""

    path: Path
    motion: Motion
    target: Path
    child: Path

    @property
    def cut(self) -> tuple[Path, bool]:
        """The path of the sequence that holds the child, and whether it has to be opened."""
        inside = isinstance(self.child[-1], int)
        return (self.child[:-2], False) if inside else (self.child, True)


def stage_of(func: Func, stmt: Statement, target: Path) -> Path | None:
    """The largest subtree around a statement that does not hold the target loop."""
    common = 0
    while common < min(len(stmt.path), len(target)) and stmt.path[common] == target[common]:
        common += 1
    holder = stmt.path[:common]
    if not holder or holder[-1] != "body" or not isinstance(at(func, holder[:-1]), Seq):
        return None
    return stmt.path[: common + 1]


def child_next_to(func: Func, stage: Motion, target: Path) -> Path | None:
    """The child of the target's body that holds the first consumer, or the last producer."""
    paths = []
    for flow in flows(func, stage):
        other = flow.sink if stage.producer else flow.source
        paths.append(other.path)
    if not paths:
        return None
    chosen = min(paths, key=_text_order) if stage.producer else max(paths, key=_text_order)
    path: Path = (*target, "body")
    node = stmt_at(func, path)
    while isinstance(node, Seq | Alloc):
        # A consumer may leave the scopes of what it does not read: it goes behind them.
        if isinstance(node, Alloc) and not stage.producer:
            break
        path = (*path, *chosen[len(path) : len(path) + (2 if isinstance(node, Seq) else 1)])
        node = stmt_at(func, path)
    return path


def _text_order(path: Path) -> tuple[int, ...]:
    return tuple(step for step in path if isinstance(step, int))


@lru_cache(maxsize=256)
def emitted(func: Func, stage: Stage) -> Stmt:
    """The stage's subtree with its loops narrowed to one iteration of the target, and guards."""
    program, placed = model(func), placements(func, stage.motion)
    loops = region_loops(func, stage)
    narrowed = _narrow(program, stmt_at(func, stage.path), stage, placed, loops)
    bounds = {x.var.name: x for x in nodes(narrowed, For)}
    by_name = {s.name: s for s in statements(func)}
    with operation_limit():
        return _rebased(_guards(narrowed, program, stage, placed, loops, bounds, by_name))


def _rebased(stmt: Stmt) -> Stmt:
    """`stmt` with every loop that begins at a moving place made to count from zero."""

    def change(found: Node) -> Node | None:
        if not isinstance(found, For) or not variables(found.begin):
            return None
        body = substitute(found.body, {found.var.name: add(found.begin, found.var)})
        return replace(
            found, begin=index(0), end=linear(sub(found.end, found.begin)).expr(), body=body
        )

    return rewrite(stmt, change)


def region_loops(func: Func, stage: Stage) -> tuple[For, ...]:
    """The loops around the target's body, outermost first."""
    found = []
    for end in range(len(stage.target) + 1):
        node = at(func, stage.target[:end]) if _is_node(func, stage.target[:end]) else None
        if isinstance(node, For):
            found.append(node)
    return tuple(found)


def _is_node(func: Func, path: Path) -> bool:
    here: object = func
    for step in path:
        here = here[step] if isinstance(step, int) else getattr(here, step)  # type: ignore[index]
    return not isinstance(here, tuple)


def _narrow(
    program: Model,
    stmt: Stmt,
    stage: Stage,
    placed: Mapping[str, isl.Map],
    around: Sequence[For],
) -> Stmt:
    match stmt:
        case For(var=var):
            body = _narrow(program, stmt.body, stage, placed, around)
            bounds = _bounds(program, stmt, placed, around)
            if bounds is None:
                return replace(stmt, body=body)
            return For(var, *bounds, body, stmt.kind, stmt.annotations, stmt.span)
        case If() | Alloc():
            return replace(stmt, body=_narrow(program, stmt.body, stage, placed, around))
        case Seq(body=parts):
            return Seq(tuple(_narrow(program, p, stage, placed, around) for p in parts))
    return stmt


def _bounds(
    program: Model, loop: For, placed: Mapping[str, isl.Map], around: Sequence[For]
) -> tuple[Expr, Expr] | None:
    """begin and end of a stage's loop within one iteration of the target; None to leave it."""
    total: isl.Map | None = None
    with operation_limit():
        for stmt in program.statements:
            if stmt.name not in placed or loop.var.name not in stmt.loop_names:
                continue
            dim = stmt.loop_names.index(loop.var.name)
            pick = isl.Map(f"{program.prefix}{{ {program.tuple_of(stmt)} -> [x{dim}] }}")
            values = placed[stmt.name].reverse().apply_range(pick)
            total = values if total is None else total.union(values)
        if total is None or total.is_empty():
            return None
        found = loop_bounds(total.coalesce(), [x.var for x in around], program.symbols)
    if found is None:
        return None
    whole = constant(loop.begin), constant(loop.end)
    if None not in whole and found.extent >= whole[1] - whole[0]:  # type: ignore[operator]
        return None
    return found.begin, add(found.begin, index(found.extent))


def _guards(
    stmt: Stmt,
    program: Model,
    stage: Stage,
    placed: Mapping[str, isl.Map],
    around: Sequence[For],
    bounds: Mapping[str, For],
    by_name: Mapping[str, Statement],
) -> Stmt:
    def visit(node: Stmt) -> Stmt:
        match node:
            case Store() | Reduce():
                return guard(node)
            case If(condition=outer):
                inside = visit(node.body)
                if isinstance(inside, If):
                    return replace(node, condition=both(outer, inside.condition), body=inside.body)
                return replace(node, body=inside)
            case For() | Alloc():
                return replace(node, body=visit(node.body))
            case Seq(body=parts):
                return Seq(tuple(visit(p) for p in parts))
        raise TypeError(f"not a statement of the unlowered IR: {node!r}")

    def guard(leaf: Leaf) -> Stmt:
        if leaf.name not in placed:
            # It has no instance at all, or the step would have been refused.
            return wrap_if(FALSE, leaf)
        found = by_name[leaf.name]
        own = found.loops[stage.motion.shared :]
        pick = ", ".join(f"x{n}" for n in range(stage.motion.shared, len(found.loops)))
        project = isl.Map(f"{program.prefix}{{ {program.tuple_of(found)} -> [{pick}] }}")
        wanted = placed[leaf.name].reverse().apply_range(project).wrap().flatten()
        loops = [*around, *(bounds[x.var.name] for x in own)]
        names = program.symbols | {x.var.name: f"x{n}" for n, x in enumerate(loops)}
        parts = [program.context]
        for x in loops:
            here = names[x.var.name]
            parts.append(f"{term(x.begin, names)} <= {here} < {term(x.end, names)}")
        parts += [condition(c, names) for c in found.conditions]
        dims = ", ".join(names[x.var.name] for x in loops)
        context = isl.Set(f"{program.prefix}{{ [{dims}] : {' and '.join(parts)} }}")
        meaning = [Var(x.var.name) for x in loops]
        return wrap_if(condition_of(wanted, context, meaning, program.symbols), leaf)

    return visit(stmt)


def insert(func: Func, stage: Stage, body: Stmt) -> Func:
    """`func` with the stage's subtree removed and `body` put next to the child."""
    child = stmt_at(func, stage.child)
    joined = seq(body, child) if stage.motion.producer else seq(child, body)
    # The subtree leaves an empty statement behind, so that the child's path stays right.
    emptied = replace_at(func, stage.path, Seq(()))
    return normalised(replace_at(emptied, stage.child, joined))


def settle(func: Func, buffer: str, inward: int = 0) -> Func:
    """`func` with an allocation moved inwards, and shrunk to the region that is used there.

    It goes to the innermost point that encloses the buffer's uses and keeps its values; `inward` is
    a number of loops that are known to keep them. A buffer that a reduction combines with others
    keeps its shape, since they share its indices.
    """
    found = allocations(func).get(buffer)
    if found is None:
        return func
    path, alloc = found
    users = [s for s in statements(func) if any(a.buffer.name == buffer for a in s.accesses)]
    if not users:
        return normalised(replace_at(func, path, alloc.body))
    outer = sum(1 for n in range(len(path)) if _is_loop(func, path[:n]))
    depth = _innermost(func, users, buffer, max(outer, inward))
    if depth == outer:
        return func
    without = replace_at(func, path, alloc.body)
    users = [s for s in statements(without) if s.name in {u.name for u in users}]
    place, first, last = _enclosing_range(without, users, depth)
    fixed = [x.var.name for x in users[0].loops[:depth]]
    chosen = region.touches(users, buffer)
    box = region.box(alloc.buffer, chosen, fixed)
    shared = combined_with(stmt_at(without, place), (buffer,)) != (buffer,)
    if not shared and all(constant(e) is not None for e in box.extents):
        shrunk = replace(alloc.buffer, shape=box.extents)
        inside = redirect(stmt_at(without, place), {buffer: shrunk}, box)
    else:
        shrunk, inside = alloc.buffer, stmt_at(without, place)
    if isinstance(inside, Seq) and first is not None:
        middle = Alloc(shrunk, seq(*inside.body[first : last + 1]))
        inside = seq(*inside.body[:first], middle, *inside.body[last + 1 :])
    else:
        inside = Alloc(shrunk, inside)
    return normalised(replace_at(without, place, inside))


def _is_loop(func: Func, path: Path) -> bool:
    return _is_node(func, path) and isinstance(at(func, path), For)


def _innermost(func: Func, users: Sequence[Statement], buffer: str, outer: int) -> int:
    """The greatest number of common loops within one iteration of which all values stay."""
    common = users[0].loop_names
    for user in users[1:]:
        n = 0
        while n < min(len(common), len(user.loop_names)) and common[n] == user.loop_names[n]:
            n += 1
        common = common[:n]
    names = [u.name for u in users]
    for depth in range(len(common), outer, -1):
        if self_contained(func, names, buffer, depth):
            return depth
    return outer


def _enclosing_range(
    func: Func, users: Sequence[Statement], depth: int
) -> tuple[Path, int | None, int]:
    """The deepest node around all users with `depth` loops around it; of a sequence, the children
    from the first to the last user."""
    path: Path = ("body",)
    loops = 0
    while True:
        node = stmt_at(func, path)
        if isinstance(node, For) and loops < depth:
            loops += 1
            path = (*path, "body")
        elif isinstance(node, Alloc):
            path = (*path, "body")
        elif isinstance(node, Seq):
            steps = sorted({int(u.path[len(path) + 1]) for u in users})
            if len(steps) > 1:
                return path, steps[0], steps[-1]
            path = (*path, "body", steps[0])
        else:
            return path, None, 0
