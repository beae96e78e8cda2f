"""The commands of the language model: train it, evaluate it, and evolve what it learns first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorc.cli.app import AsJson, Threads, app
from tensorc.cli.refusals import emit, refusals
from tensorc.cli.searches import INTERRUPTED

__all__ = ["adapt", "app", "evaluate", "evolve", "pack", "train"]

if TYPE_CHECKING:
    from tensorc.tlm.train import Progress

Data = Annotated[
    list[Path],
    typer.Argument(help="records (.jsonl, .jsonl.xz), evolved sentences, .lessons, or folders"),
]


@app.command()
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="the folder; a training that it holds goes on")],
    start: Annotated[Path | None, typer.Option(help="weights to begin with")] = None,
    development: Annotated[
        list[Path] | None,
        typer.Option(help="data that are never learned; the best weights on these are kept"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="of the optimiser")] = 4000,
    lessons: Annotated[int, typer.Option(min=1, help="tasks of a step")] = 8,
    answers: Annotated[int, typer.Option(min=1, help="sentences of each at most")] = 16,
    rate: Annotated[float, typer.Option(help="the learning rate")] = 1e-3,
    every: Annotated[int, typer.Option(min=1, help="steps between two states on disk")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="of all random numbers")] = 0,
    layers: Annotated[int | None, typer.Option(min=1, help="of the network; default: 4")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="of a layer; default: 4")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="channels; default: 256")] = None,
    dropout: Annotated[float | None, typer.Option(help="share; default: 0")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="without contexts")] = False,
    told: Annotated[
        float, typer.Option(help="the share of answers that begin with their quality")
    ] = 0.5,
    slow: Annotated[float, typer.Option(help="the weight of the value head's loss")] = 0.25,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train the language model on records and evolved sentences of the training tasks.

    Started again with the same arguments, it goes on where it was stopped. torchrun has several
    processes train together.
    """
    from tensorc.cli.training import Wanted, train_model
    from tensorc.tlm.vocabulary import vocabulary

    wanted = Wanted(
        tuple(data), out, start, tuple(development or ()),
        {"steps": steps, "lessons": lessons, "answers": answers, "rate": rate, "every": every,
         "seed": seed, "told": told, "slow": slow},
        {"layers": layers, "heads": heads, "width": width, "dropout": dropout,
         "blind": vocabulary().contexts if blind else None}, device,
    )  # fmt: skip
    with refusals(as_json):
        found = train_model(wanted, _say)
    if found is None:
        return
    emit(found) if as_json else typer.echo(f"{found['weights']}: {found['step']} steps")


def _say(progress: Progress) -> None:
    checked = ""
    if progress.checked is not None:
        checked = f", development {progress.checked[0]:.3f} and {progress.checked[1]:.3f}"
    speed = progress.tokens / max(progress.seconds, 1e-9)
    typer.echo(
        f"# step {progress.step}: {progress.decided:.3f} nats a decision, value "
        f"{progress.slow:.3f}, {speed:.0f} tokens/s{checked}",
        err=True,
    )


@app.command("lessons")
def pack(
    data: Data,
    out: Annotated[Path, typer.Option(help="the file, .lessons; replaced as a whole")],
    split: Annotated[
        str, typer.Option(help="training, development, test or all: tasks of the set")
    ] = "training",
    as_json: AsJson = False,
) -> None:
    """Read records and evolved sentences once, for trainings that begin at once."""
    from tensorc.cli.training import pack_lessons

    with refusals(as_json):
        count = pack_lessons(data, out, split)
    emit({"lessons": count}) if as_json else typer.echo(f"{out}: {count} lessons")


@app.command()
def evaluate(
    weights: Annotated[Path, typer.Argument(help="a file that train made")],
    data: Data,
    split: Annotated[
        str, typer.Option(help="training, development, test or all: tasks of the set")
    ] = "development",
    as_json: AsJson = False,
) -> None:
    """How well a model does on records of tasks that it has not seen; nothing is measured."""
    from tensorc.cli.training import evaluate_model

    with refusals(as_json):
        found = evaluate_model(weights, data, split)
    emit(found.as_dict()) if as_json else typer.echo(str(found))


@app.command()
def adapt(
    minutes: Annotated[float, typer.Option(help="the budget; a run that was ended goes on")] = 30.0,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="a training task or a network of the set; repeatable; default: any"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the file; default: the weights of this machine")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="those to begin with; default: those in use")
    ] = None,
    threads: Threads = 0,
    seed: Annotated[int, typer.Option(min=0, help="of all random numbers")] = 0,
    executor: Annotated[str, typer.Option(help="local, or dask://HOST:PORT")] = "local",
    as_json: AsJson = False,
) -> None:
    """Adapt the language model to this machine: measure where it is unsure, and learn that."""
    from tensorc import config
    from tensorc.cli.training import adapt_model

    with refusals(as_json), interruptible():
        found = adapt_model(
            weights, out, tasks or (), minutes, threads or config.num_threads, seed, executor,
            lambda text: typer.echo(f"# {text}", err=True),
        )  # fmt: skip
    emit(found.as_dict()) if as_json else typer.echo(str(found))


@contextmanager
def interruptible() -> Iterator[None]:
    """Say, when the user interrupts an adaptation, that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("# interrupted: what was measured is kept; the same command goes on", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def evolve(
    out: Annotated[Path, typer.Argument(help="the file, .evolved.jsonl; what it has is kept")],
    records: Annotated[list[Path], typer.Option(help="what the cost model learns from")],
    tasks: Annotated[int, typer.Option(min=1, help="synthetic tasks")] = 3000,
    sentences: Annotated[int, typer.Option(min=1, help="that are kept of each")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="of the tasks and the evolution")] = 0,
    as_json: AsJson = False,
) -> None:
    """Evolve sentences of synthetic tasks against a cost model; nothing is measured."""
    from tensorc.cli.training import evolve_sentences

    with refusals(as_json):
        count = evolve_sentences(out, records, tasks, sentences, seed, _evolved)
    emit({"tasks": count}) if as_json else typer.echo(f"{count} tasks")


def _evolved(name: str, expected: Sequence[float]) -> None:
    typer.echo(f"# {name}: {len(expected)} sentences, the last {expected[-1]:.2f}", err=True)
