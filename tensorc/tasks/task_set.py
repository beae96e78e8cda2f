"""The tasks that are committed, as data."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.tasks.split import SPLITS, Held, Split

PLACE = Path(__file__).with_name("tasks.jsonl.gz")
BALANCE = 12.0
"""Float operations a byte of memory traffic above which a task is bound by arithmetic: what one
core of a server with 512-bit vectors does at its peak, over what it reads."""


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task of the set.

    Attributes:
        name: unique and stable: what it was first made from, and its number there.
        family: the kind of operator it is built around.
        origins: all that has this program: sizes of networks ("bert-base@1x128"), or "operators".
        split: the part of the set.
        held: why it is not for training, if anything but the draw says so.
        flops: float operations of a call.
        bytes: of its parameters.
        text: the function, in the text form.
    """

    name: str
    family: str
    origins: tuple[str, ...]
    split: Split
    held: Held
    flops: int
    bytes: int
    text: str

    @property
    def func(self) -> Func:
        return _parsed(self.text)

    @property
    def intensity(self) -> float:
        """Float operations for each byte that memory must move at least."""
        return self.flops / max(self.bytes, 1)

    @property
    def compute_bound(self) -> bool:
        """Whether arithmetic takes longer than memory traffic: `intensity` is over `BALANCE`."""
        return self.intensity > BALANCE


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Func:
    return parse(text)


@dataclass(frozen=True)
class TaskSet:
    """Tasks of different structure, in a fixed order. `digest` is the SHA-256 of all of it."""

    tasks: tuple[KnownTask, ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[KnownTask]:
        return iter(self.tasks)

    def __getitem__(self, name: str) -> KnownTask:
        """The task of a name. Raises ArgumentError when there is none."""
        if name not in self._by_name:
            raise ArgumentError("name", f"the task set has no {name!r:.80}")
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, KnownTask]:
        return {task.name: task for task in self.tasks}

    def of_split(self, split: Split) -> tuple[KnownTask, ...]:
        """The tasks of "training", "development" or "test".

        Raises:
            ArgumentError: `split` is none of these.
        """
        if split not in SPLITS:
            raise ArgumentError("split", f"legal here: {', '.join(SPLITS)}; got {split!r:.80}")
        return tuple(task for task in self.tasks if task.split == split)

    def of_origin(self, origin: str) -> tuple[KnownTask, ...]:
        """The tasks of one network in one size; none when the set does not have it."""
        return tuple(task for task in self.tasks if origin in task.origins)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self._lines().encode()).hexdigest()

    def _lines(self) -> str:
        return "".join(json.dumps(asdict(task), ensure_ascii=False) + "\n" for task in self.tasks)

    def save(self, path: Path = PLACE) -> None:
        """Write the set, and its digest beside it."""
        data = gzip.compress(self._lines().encode(), 9, mtime=0)
        path.write_bytes(data)
        digest_of(path).write_text(self.digest + "\n", encoding="ascii")

    def table(self) -> str:
        """Families by split: how many tasks, how many bound by arithmetic, and their operations."""
        head = ("family", *SPLITS, "compute-bound", "least FLOP", "most FLOP")
        families = sorted({task.family for task in self.tasks})
        rows = [_row(family, [t for t in self.tasks if t.family == family]) for family in families]
        lines = [head, *rows, _row("all", self.tasks)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )


def _row(family: str, tasks: Iterable[KnownTask]) -> tuple[str, ...]:
    own = list(tasks)
    counts = (str(sum(task.split == split for task in own)) for split in SPLITS)
    flops = [task.flops for task in own]
    bound = str(sum(task.compute_bound for task in own))
    return (family, *counts, bound, f"{min(flops):.2g}", f"{max(flops):.2g}")


def digest_of(path: Path) -> Path:
    """The file that holds the digest of the set stored at `path`."""
    return path.with_name("tasks.sha256")


def load(path: Path = PLACE) -> TaskSet:
    """A stored set.

    Raises:
        ArgumentError: there is none, or it is damaged, or it is not the one of its digest.
    """
    try:
        text = gzip.decompress(path.read_bytes()).decode()
        wanted = digest_of(path).read_text(encoding="ascii").strip()
        records = [json.loads(line) for line in text.splitlines()]
        found = TaskSet(tuple(KnownTask(**{**r, "origins": tuple(r["origins"])}) for r in records))
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
        raise ArgumentError("path", f"{path} holds no task set: {error}") from error
    if found.digest != wanted:
        reason = f"{path} is the task set {found.digest}, its digest is {wanted:.80}"
        raise ArgumentError("path", reason)
    return found


@lru_cache(maxsize=1)
def task_set() -> TaskSet:
    """The set that is committed. Raises ArgumentError as `load` when the installation is broken."""
    return load()
