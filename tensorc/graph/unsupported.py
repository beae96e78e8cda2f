"""What keeps a network from being imported, all of it in one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One thing that keeps a network from being imported, with all the modules it occurs in."""

    what: str
    reason: str
    places: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.places)

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        shown = [f"{path or 'the network itself'}" for path, _ in self.places[:5]]
        more = len(self.places) - len(shown)
        where = ", ".join(shown) + (f" and {more} more modules" if more > 0 else "")
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.what}{reason} ({times}, in {where})"


class UnsupportedNetworkError(UnsupportedError):
    """A network that cannot be imported. `problems` lists everything that is in the way."""

    def __init__(self, name: str, problems: Iterable[Unsupported]):
        self.name, self.problems = name, tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{name} uses what is not supported:{lines}")


@dataclass
class Problems:
    """What an importer has found so far, equal problems counted by the place they occur in."""

    found: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def add(self, what: str, reason: str, where: str) -> None:
        self.found.setdefault((what, reason), Counter())[where] += 1

    def listed(self) -> tuple[Unsupported, ...]:
        return tuple(Unsupported(*key, tuple(c.items())) for key, c in self.found.items())

    def refuse(self, name: str) -> None:
        """Raises UnsupportedNetworkError for the network `name` if there are any."""
        if self.found:
            raise UnsupportedNetworkError(name, self.listed())
