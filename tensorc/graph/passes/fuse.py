"""Fusion: which nodes make one program.

A group has at most one core: a product or window (an anchor), or reductions of the same dimensions
of tensors of one shape (rows), or attention: a product of the softmax of a product. Around it are
maps: those that follow an anchor and have its number of elements, a padding before it, and all
around rows. Views and fills belong to no group: each group that reads through one has it as an
index map of its own.

Nodes are placed in reverse order. When all who read a node's result are in one group, the node may
join it, and its result never lies in memory. So a group has one result, and the groups cannot
depend on each other in a circle: a path that left the group would leave it through that result.
This is fusion by dominance, with the residual sum of two branches going to the branch that comes
later (Chen et al., TVM, 2018, section 3, has the same kinds of operators).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc.graph.elements import operand
from tensorc.graph.graph import Graph, Node, Value
from tensorc.graph.lower import Group
from tensorc.graph.ops import Kind, apply, operator_of, reduced_dimensions
from tensorc.ir import build as tc
from tensorc.ir.build import Handle
from tensorc.ir.nodes import Binary, Load
from tensorc.ir.simplify import simplify
from tensorc.ir.walk import nodes

# Views that give each element of their operand once.
_BIJECTIONS = frozenset({"view", "permute", "flip"})
_FREE = (Kind.VIEW, Kind.FILL)
# Attention is one program where its rows are so many, several times over: blocks for registers.
_BLOCKS = range(4, 13)
_SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
# Operators with larger results that take each element of an operand at most once all the same.
_ONCE = frozenset({"cat", "constant_pad_nd", "slice_scatter", "select_scatter"})
# Maps join smaller groups: each nests its readers more deeply, and nobody gains by more of them.
_MOST = 100


def fuse(graph: Graph) -> tuple[Group, ...]:
    """The groups of a graph that has been cleaned up, in an order in which they can run.

    A result that is a view of a value in memory is no node of a group, if a reshape gives it: see
    `stored_as`.
    """
    return _Fusion(graph).groups()


def stored_as(graph: Graph, value: Value) -> Value:
    """The value whose memory, read as another shape, holds `value`: what reshapes are taken of."""
    producers = graph.producers()
    while value in producers and producers[value].op == "view":
        value = producers[value].inputs[0]
    return value


@dataclass(slots=True, eq=False)
class _Growing:
    """A group while it grows. `size` is the number of elements of its result."""

    size: int
    members: list[Node] = field(default_factory=list)
    anchor: Node | None = None
    rows: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    before: list[Node] = field(default_factory=list)  # paddings that only the anchor reads
    scores: Node | None = None  # of attention, the product that the anchor takes the softmax of


@dataclass(frozen=True, slots=True)
class _Use:
    """A node that reads a value, and the views through which it does."""

    user: Node
    views: tuple[Node, ...]


class _Fusion:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.producers = graph.producers()
        self.users = graph.users()
        self.position = {node: number for number, node in enumerate(graph.nodes)}
        self.results = {stored_as(graph, value) for value in graph.outputs}
        # Views that are worth computing where that costs nothing, and those that must be.
        made = (self.producers[v] for v in self.results if v in self.producers)
        self.written = {node for node in made if operator_of(node).kind in _FREE}
        self.movable = {n for n in graph.nodes if self._is_movable(n)} - self.written
        self.place: dict[Node, _Growing] = {}

    def free(self, node: Node) -> bool:
        """Whether a node is an index map or a number where it is read, not a member of a group."""
        if operator_of(node).kind not in _FREE:
            return False
        return node not in self.written and node not in self.movable

    def groups(self) -> tuple[Group, ...]:
        self._grow(self.graph.nodes)
        alone = {n for n in self.movable if len(self.place[n].members) == 1}
        if alone:
            # Nobody computes these views on the way, so that their readers do.
            self.movable -= alone
            self.place.clear()
            self._grow(self.graph.nodes)
        found = dict.fromkeys(self.place[n] for n in self.graph.nodes if n in self.place)
        ordered = sorted(found, key=lambda group: max(map(self._number, group.members)))
        return tuple(self._finished(group) for group in ordered)

    def _number(self, node: Node) -> int:
        return self.position[node]

    def _grow(self, order: Iterable[Node]) -> None:
        for node in reversed(list(order)):
            if not self.free(node):
                group = self._home(node)
                group.members.append(node)
                self.place[node] = group

    # Views ----------------------------------------------------------------------------------------

    def _is_movable(self, node: Node) -> bool:
        """Whether a view is only read through a reshape that its index map would need division for.

        Written in its own order, such a view makes the reshape free.
        """
        if operator_of(node).kind is not Kind.VIEW or node.op == "view" or not node.inputs:
            return False
        users = self.users.get(node.output, [])
        if len(users) != 1 or users[0].op != "view" or len(node.inputs) != 1:
            return False
        if not node.output.size:
            return False
        return self._divides(node, users[0])

    def _divides(self, node: Node, reshape: Node) -> bool:
        source = operand(tc.placeholder(node.inputs[0].shape, node.inputs[0].dtype))
        (viewed,) = apply(node, lambda _: source)[:1]
        (reshaped,) = apply(reshape, lambda _: viewed)
        names = [f"i{d}" for d in range(reshaped.rank)]
        ranges = {n: (0, extent - 1) for n, extent in zip(names, reshaped.shape, strict=True)}
        load = reshaped.element(*(Handle(tc.var(n).expr) for n in names)).expr
        assert isinstance(load, Load)
        divisions = ("floordiv", "floormod")
        return any(
            part.op in divisions
            for index in load.indices
            for part in nodes(simplify(index, ranges), Binary)
        )

    def _uses(self, value: Value) -> list[_Use] | None:
        """Who reads a value, directly or through free views; None if it must lie in memory."""
        if value in self.results:
            return None
        found: list[_Use] = []
        pending: list[tuple[Value, tuple[Node, ...]]] = [(value, ())]
        while pending:
            current, views = pending.pop()
            for user in self.users.get(current, ()):
                if not self.free(user):
                    found.append(_Use(user, views))
                    continue
                if operator_of(user).kind is Kind.VIEW:
                    pending.extend((output, (*views, user)) for output in user.outputs)
        return found

    # Joining --------------------------------------------------------------------------------------

    def _home(self, node: Node) -> _Growing:
        """The group that a node belongs to: its readers', or a new one."""
        read = [value for value in node.outputs if value in self.users or value in self.results]
        uses = self._uses(read[0]) if len(read) == 1 else None
        homes = {self.place[use.user] for use in uses} if uses else set()
        if uses and len(homes) == 1:
            (group,) = homes
            if self._joins(node, group, uses):
                return group
        group = _Growing(node.output.size)
        match operator_of(node).kind:
            case Kind.ANCHOR:
                group.anchor = node
            case Kind.ROWS:
                group.rows = reduced_dimensions(node)
        return group

    def _joins(self, node: Node, group: _Growing, uses: list[_Use]) -> bool:
        match operator_of(node).kind:
            case Kind.ANCHOR:
                return self._joins_as_anchor(node, group, uses)
            case Kind.ROWS:
                return self._joins_as_rows(node, group, uses)
        if len(group.members) >= _MOST and group.scores is None:
            return False
        if group.anchor is None:
            if group.rows is None:
                return not self._repeated(node, uses) or self._brings_rows(node, group)
            return not (self._is_reduced(uses, group) and self._follows_anchor(node))
        if all(use.user is group.anchor for use in uses):
            welcome = operator_of(node).kind is Kind.PAD and len(uses) == 1
            if welcome:
                group.before.append(node)
            return welcome
        behind = all(u.user is not group.anchor and u.user not in group.before for u in uses)
        return behind and not self._repeated(node, uses)

    def _is_reduced(self, uses: list[_Use], group: _Growing) -> bool:
        """Whether one of the group's reductions depends on a value with these uses."""
        pending, seen = [use.user for use in uses], set[Node]()
        while pending:
            node = pending.pop()
            if operator_of(node).kind is Kind.ROWS:
                return True
            if node not in seen:
                seen.add(node)
                inner = (u.user for v in node.outputs for u in self._uses(v) or ())
                pending.extend(user for user in inner if self.place.get(user) is group)
        return False

    def _follows_anchor(self, node: Node) -> bool:
        """Whether a map can be computed where an anchor's result is made, which is better than
        where it is reduced."""
        if operator_of(node).kind is not Kind.POINTWISE:
            return False
        for value in node.inputs:
            below = self.producers.get(value)
            while below is not None and below.op in _BIJECTIONS:
                value = below.inputs[0]
                below = self.producers.get(value)
            if below is None or below.output.size != node.output.size:
                continue
            if len(self._uses(value) or ()) != 1:
                continue
            if operator_of(below).kind is Kind.ANCHOR or self._follows_anchor(below):
                return True
        return False

    def _brings_rows(self, node: Node, group: _Growing) -> bool:
        """Whether a map follows reductions of tensors of the group's shape, which then belong to
        the group: x / norm(x) is one program. The group becomes one of rows."""
        below: Node | None = node
        while below is not None and operator_of(below).kind is not Kind.ROWS:
            narrow = operator_of(below).kind is Kind.POINTWISE or below.op == "view"
            made = [self.producers[v] for v in below.inputs if v in self.producers]
            below = made[0] if narrow and len(made) == 1 else None
        rows = None if below is None else reduced_dimensions(below)
        if rows is None or any(member.output.shape != rows[0] for member in group.members):
            return False
        group.rows = rows
        return True

    def _repeated(self, node: Node, uses: list[_Use]) -> bool:
        """Whether computing a map where it is read would compute elements of it again and again."""
        size = node.output.size
        more = any(u.user.output.size > size and u.user.op not in _ONCE for u in uses)
        return more or (operator_of(node).costly and len(uses) > 1 and not _pointwise(uses))

    def _joins_as_anchor(self, node: Node, group: _Growing, uses: list[_Use]) -> bool:
        if group.scores is node:
            return True
        if group.anchor is not None or group.rows is not None:
            return False
        size = node.output.size
        fits = (
            operator_of(use.user).kind is Kind.POINTWISE or use.user in self.movable | self.written
            for use in uses
        )
        bijective = all(view.op in _BIJECTIONS for use in uses for view in use.views)
        same = all(use.user.output.size == size for use in uses) and group.size == size
        if not (all(fits) and bijective and same):
            return False
        group.anchor = node
        return True

    def _joins_as_rows(self, node: Node, group: _Growing, uses: list[_Use]) -> bool:
        rows = reduced_dimensions(node)
        assert rows is not None
        if group.anchor is not None:
            scores = self._scores(node, group.anchor, uses)
            if scores is None or group.rows is not None or group.before:
                return False
            group.rows, group.scores = rows, scores
            return True
        if group.rows is not None and group.rows != rows:
            return False
        shape, gone = rows
        reduced = tuple(1 if d in gone else n for d, n in enumerate(shape))
        shapes = {shape, reduced, tuple(n for d, n in enumerate(shape) if d not in gone)}
        plain = all(v.op in ("view", "expand") for use in uses for v in use.views)
        kinds = (Kind.POINTWISE, Kind.ROWS)
        pointwise = all(operator_of(use.user).kind in kinds for use in uses)
        if not (plain and pointwise and all(m.output.shape in shapes for m in group.members)):
            return False
        group.rows = rows
        return True

    def _scores(self, softmax: Node, anchor: Node, uses: list[_Use]) -> Node | None:
        """The product that a softmax is of, if an anchor that reads it makes them attention."""
        if softmax.op not in _SOFTMAX or anchor.op != "bmm" or len(uses) != 1:
            return None
        shape, gone = reduced_dimensions(softmax) or ((), ())
        if gone != (len(shape) - 1,) or any(view.op != "view" for view in uses[0].views):
            return None
        if not any(shape[-2] % rows == 0 for rows in _BLOCKS):
            return None
        if stored_as(self.graph, anchor.inputs[0]) is not softmax.output:
            return None
        return self._mapped_product(softmax.inputs[0])

    def _mapped_product(self, value: Value) -> Node | None:
        """The product of which a value is a map, by maps and reshapes that nobody else reads."""
        node = self.producers.get(value)
        if node is None or value in self.results or len(self.users[value]) != 1:
            return None
        if node.op == "bmm":
            return node
        if node.op != "view" and operator_of(node).kind is not Kind.POINTWISE:
            return None
        sources = dict.fromkeys(v for v in node.inputs if v.size == value.size)
        found = [product for product in map(self._mapped_product, sources) if product is not None]
        return found[0] if len(found) == 1 else None

    # Results --------------------------------------------------------------------------------------

    def _finished(self, group: _Growing) -> Group:
        """The group with the views that it reads through, each just before its first reader.

        That order, and with it the order of the inputs, is the same for equal groups.
        """
        members = sorted(group.members, key=self._number)
        ordered: dict[Node, None] = {}
        for node in members:
            self._emit(node, ordered)
        inside = set(members)
        outputs = tuple(v for n in members for v in n.outputs if self._escapes(v, inside))
        return Group(tuple(ordered), outputs)

    def _emit(self, node: Node, ordered: dict[Node, None]) -> None:
        if node not in ordered:
            for value in node.inputs:
                below = self.producers.get(value)
                if below is not None and self.free(below):
                    self._emit(below, ordered)
            ordered[node] = None

    def _escapes(self, value: Value, members: set[Node]) -> bool:
        uses = self._uses(value)
        return uses is None or any(use.user not in members for use in uses)


def _pointwise(uses: Iterable[_Use]) -> bool:
    return all(operator_of(use.user).kind is Kind.POINTWISE for use in uses)
