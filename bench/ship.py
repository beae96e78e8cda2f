"""Make the weights that the package comes with, and their model card, from a training's weights.

    python -m bench.ship trained/weights.safetensors --figures "Development set=development.json" \
        --figures "Test set, measured=judge.json"
    python -m bench.ship ... --out FOLDER       not into the package
    python -m bench.ship ... --tasks 20         with fewer tasks to compare precisions on

The weights are written in half precision (see `tensorc.tlm.shipped`). They are read back by both
networks, which must write the same for every task; how often that is what the weights of the
training write is a figure of the card.

Every figure of the card is from one of the files, from the weights, from the task set, or from this
comparison. A file of `--figures` is what `tensorc evaluate --json`, `bench.judge --json` or any
bench has written. Its objects and lists become tables, lists of more than 60 rows are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorc.errors import TensorcError
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import HELD_FAMILIES, HELD_NETWORKS, SPLITS, KnownTask, task_set
from tensorc.tlm import shipped
from tensorc.tlm import weights as stored
from tensorc.tlm.decode import Writer
from tensorc.tlm.packed import replace_file
from tensorc.tlm.sentence import prompt
from tensorc.tlm.vocabulary import vocabulary

TARGET = Target.parse("cpu:x86-64-v3;cores=2")
MOST_ROWS = 60
Row = Sequence[object]


@dataclass(frozen=True, slots=True)
class Halved:
    """What half precision costs: of `tasks` tasks, for how many the same sentence is taken
    unmeasured as with the weights of the training, and how far the value head's expectations of
    these are apart at most, in log2 of the time."""

    tasks: int
    same: int
    apart: float


class DifferentError(Exception):
    """The two networks do not write the same with the shipped weights."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        figures = [_figures(text) for text in options.figures]
        path = ship(options.weights, options.out, figures, options.tasks)
    except (TensorcError, DifferentError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {path} and {shipped.CARD} beside it")
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path, help="a file that `tensorc train` made")
    parser.add_argument("--figures", action="append", default=[], metavar="TITLE=FILE.json")
    parser.add_argument("--out", type=Path, default=shipped.weights().parent, help="a folder")
    parser.add_argument("--tasks", type=int, default=100, help="that precisions are compared on")
    return parser.parse_args(arguments)


def _figures(text: str) -> tuple[str, Any]:
    """A title, and what its file holds. Raises ValueError."""
    title, equals, file = text.rpartition("=")
    if not equals or not title.strip():
        raise ValueError(f"--figures: expected TITLE=FILE.json, got {text!r:.80}")
    try:
        return title.strip(), json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--figures: {file} cannot be read: {error}") from None


def ship(
    source: Path, out: Path, figures: Sequence[tuple[str, Any]] = (), tasks: int = 100
) -> Path:
    """Write both files into a folder; where the weights are.

    Raises:
        DifferentError: the two networks do not agree; nothing is written.
        ArgumentError, DataError, WeightsError: a file cannot be used.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, aside = out / shipped.WEIGHTS, out / f"{shipped.WEIGHTS}.new"
    trained = stored.load(source)
    provenance = {**trained.provenance, "trained": trained.digest}
    try:
        stored.save(trained.model, aside, provenance, half=True)
        halved = compared(trained, aside, chosen(tasks))
        text = card(aside, halved, figures)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    replace_file(out / shipped.CARD, text.encode())
    return path


def chosen(count: int) -> list[KnownTask]:
    """So many tasks of development, from all over it."""
    tasks = task_set().of_split("development")
    return list(tasks[:: max(len(tasks) // max(count, 1), 1)][:count])


def compared(trained: stored.Weights, path: Path, tasks: Sequence[KnownTask]) -> Halved:
    """What the training's weights write and what those of a file do. Raises DifferentError."""
    whole, half = Writer(trained.model), Writer(stored.load(path).model)
    native = Writer(stored.load_native(path))
    counted, same, apart = 0, 0, 0.0
    for task in tasks:
        space, read = Space(task.func, TARGET), prompt(task.func, TARGET)
        if len(read.tokens) > trained.model.shape.prompt:
            continue
        taken = half.best(space, read)
        if native.best(space, read).sentence != taken.sentence:
            raise DifferentError(f"{task.name}: torch and our own kernels write other sentences")
        other = whole.best(space, read)
        counted += 1
        if other.sentence == taken.sentence:
            same += 1
            apart = max(apart, abs(other.slowness - taken.slowness))
    return Halved(counted, same, apart)


# The card -----------------------------------------------------------------------------------------


def card(path: Path, halved: Halved, figures: Sequence[tuple[str, Any]]) -> str:
    """The model card of a file of weights."""
    made = stored.load(path)
    shape = made.model.shape
    count = sum(weight.numel() for weight in made.model.parameters())
    network = {
        "weights": count, "bytes": path.stat().st_size, "SHA-256": made.digest,
        "vocabulary": vocabulary().hash, **asdict(shape),
    }  # fmt: skip
    parts = [
        "# Model card: the weights that tensorc comes with\n",
        "`python -m bench.ship` has made this page; it is not edited. The model reads the loop nest"
        " of a task and a machine, and writes the decisions of a schedule; see"
        " [the language model](../../../docs/tlm.md).\n",
        "## The network\n",
        _pairs(network),
        "## What it was trained on\n",
        "Data are known by their hash; settings are those of `tensorc train`.\n",
        _pairs(made.provenance),
        "## The split\n",
        _split(),
        "## Half precision\n",
        _pairs(
            {
                "tasks of development compared": halved.tasks,
                "with the sentence that the training's weights take": halved.same,
                "largest difference of what is expected of these, log2 of the time": halved.apart,
                "where torch and our own kernels differ": 0,
            }
        ),
        "## Figures\n",
        *_sections(figures),
        "## Limits\n",
        _limits(shape.prompt, shape.answer),
    ]
    return "\n".join(parts)


def _split() -> str:
    known = task_set()
    rows = [(split, len(known.of_split(split))) for split in SPLITS]
    held: list[Row] = [
        (kind, name, split)
        for kind, table in (("network", HELD_NETWORKS), ("family", HELD_FAMILIES))
        for name, split in table.items()
    ]
    text = (
        "Nothing of a task for development or for the test was learned, whatever it is called:"
        " the structure of a program decides. Tasks that are larger than all that was trained on"
        " are for the test. No task of these networks and families was learned:\n"
    )
    return "\n".join(
        (_table(("part", "tasks"), rows), text, _table(("held out", "name", "for"), held))
    )


def _limits(tokens: int, answer: int) -> str:
    tasks = task_set().tasks
    long = sum(len(prompt(task.func, TARGET).tokens) > tokens for task in tasks)
    rows = {
        "tokens of a task that are read at most": tokens,
        "tokens of a schedule that are written at most": answer,
        "tasks of the set": len(tasks),
        "of these too long": long,
    }
    text = (
        "It knows CPUs; what is compiled for a CUDA device is scheduled by rules. It was trained on"
        " measurements of the machines that the data name, and a machine of another kind may want"
        " other schedules: `tensorc adapt` measures and learns there. What it writes is legal"
        " whatever the weights are; how fast it is, is known where it was measured, and figures"
        " above are of the machine that they name.\n"
    )
    return "\n".join((text, _pairs(rows)))


def _sections(figures: Sequence[tuple[str, Any]]) -> Iterator[str]:
    if not figures:
        yield "None were given.\n"
    for title, data in figures:
        yield f"### {title}\n"
        yield from _tables(data if isinstance(data, Mapping) else {"rows": data}, "")


def _tables(data: Mapping[str, Any], name: str) -> Iterator[str]:
    """Tables of all that is in an object: its plain values first, then lists and objects of it."""
    if name:
        yield f"**{name}**\n"
    plain = {key: value for key, value in data.items() if not isinstance(value, Mapping | list)}
    if plain:
        yield _table(("", "value"), list(plain.items()))
    for key, value in data.items():
        own = f"{name}, {key}" if name else key
        if isinstance(value, Mapping) and value:
            yield from _tables(value, own)
        elif isinstance(value, list) and value:
            yield _listed(value, own)


def _listed(rows: Sequence[Any], name: str) -> str:
    """A list as a table; of objects those values that are plain."""
    if len(rows) > MOST_ROWS:
        return f"**{name}**: {len(rows)} rows, which are not shown.\n"
    if not all(isinstance(row, Mapping) for row in rows):
        return f"**{name}**: {', '.join(map(_cell, rows))}\n"
    plain = [{k: v for k, v in row.items() if not isinstance(v, Mapping | list)} for row in rows]
    head = list(dict.fromkeys(key for row in plain for key in row))
    return f"**{name}**\n\n{_table(head, [[row.get(key) for key in head] for row in plain])}"


def _pairs(data: Mapping[str, Any]) -> str:
    """One table of all values, those of objects in objects under joined names."""
    return _table(("", "value"), list(_flat(data, "")))


def _flat(data: Mapping[str, Any], before: str) -> Iterator[Row]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}, ")
        else:
            yield f"{before}{key}", value


def _table(head: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.4g}"
        case list() | tuple():
            return ", ".join(map(_cell, value))
    return str(value).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
