"""Constants in the layout that a schedule chose: packed once, when they are first seen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Pack: TypeAlias = Callable[[object], Any]

KEPT = 16
"""So many packed arrays are kept for each parameter, those used last."""


class Packed:
    """The packed forms of the arrays given for one constant parameter.

    The parameter's mode "const" says that an array never changes, so one that was seen before, the
    same object, is not packed again. It is kept alive, so that its identity stays its own.
    """

    def __init__(self, packs: Sequence[Pack]) -> None:
        self._packs = tuple(packs)
        self._kept: OrderedDict[int, tuple[object, Any]] = OrderedDict()

    def __call__(self, array: object) -> Any:
        """The array in the layout that the kernel reads. Raises ArgumentError as a call does."""
        known = self._kept.get(id(array))
        if known is None:
            packed: Any = array
            for pack in self._packs:
                packed = pack(packed)
            self._kept[id(array)] = known = (array, packed)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(id(array))
        return known[1]


def packing(call: Callable[..., None], places: Mapping[int, Packed]) -> Callable[..., None]:
    """A call whose arguments at some places are packed first."""

    def packed_call(*arguments: object) -> None:
        given = list(arguments)
        for place, packed in places.items():
            if place < len(given):
                given[place] = packed(given[place])
        call(*given)

    return packed_call
