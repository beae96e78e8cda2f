"""The commands that search by measurement: tune one thing now, or collect records of many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorc.cli.app import AsJson, Layers, Sizes, Target, Threads, app
from tensorc.cli.refusals import emit, refusals

__all__ = ["app", "collect", "tune"]

if TYPE_CHECKING:
    from tensorc.cli.tune import Report
    from tensorc.search.collect import Done

INTERRUPTED = 130
"""The exit code that shells have for it."""


@app.command()
def tune(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT", help="a task of the task set, a network, or FILE.py:FUNC"
        ),
    ],
    tuner: Annotated[
        str, typer.Option(help="default, random, evolutionary, roller or tlm")
    ] = "evolutionary",
    trials: Annotated[
        int, typer.Option(min=1, help="candidates that are tried, for each task on average")
    ] = 64,
    records: Annotated[
        Path | None, typer.Option(help="append to this file; what it holds is not tried again")
    ] = None,
    threads: Threads = 0,
    target: Target = "cpu",
    seed: Annotated[int, typer.Option(help="of the tuner's random numbers")] = 0,
    executor: Annotated[str, typer.Option(help="local, or dask://HOST:PORT")] = "local",
    plot: Annotated[
        Path | None, typer.Option(help="the best time after each trial, .png or .html")
    ] = None,
    layers: Layers = None,
    size: Sizes = None,
    as_json: AsJson = False,
) -> None:
    """Search for fast schedules by measurement; goes on where an earlier search stopped.

    Exit code 1 says that something was refused, or that no candidate at all was right.
    """
    from tensorc import config
    from tensorc.cli.tune import Settings, tune_subject

    settings = Settings(
        tuner, trials, records, threads or config.num_threads, target, seed, executor, plot,
        tuple(size or ()), layers,
    )  # fmt: skip
    with refusals(as_json), interruptible(records):
        found = tune_subject(subject, settings)
    emit(found.as_dict()) if as_json else typer.echo(str(found))
    if records is None:
        typer.echo("# nothing was kept; --records FILE keeps it", err=True)
    else:
        typer.echo(f"# {hint(subject, records, target, found)}", err=True)
    if not found.right:
        raise typer.Exit(1)


def hint(subject: str, records: Path, target: str, found: Report) -> str:
    """What to do with records of a subject. The other commands apply a schedule's own steps."""
    if found.network:
        return f"TENSORC_DATABASE={records} has networks compiled with this"
    load = f"Database({str(records)!r}).schedule(func, tc.Target.parse({target!r}))"
    told = f"in Python: from tensorc.search.database import Database; s = {load}"
    if Path(subject.partition(":")[0]).exists() and not found.scheduled:
        told += f"; TENSORC_DATABASE={records} tensorc bench {subject} (or compile, show) takes it"
    return told


@contextmanager
def interruptible(records: Path | None) -> Iterator[None]:
    """Say, when the user interrupts a search, what becomes of what was measured."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "nothing was kept" if records is None else f"{records} has what was measured"
        again = "" if records is None else "; the same command goes on"
        typer.echo(f"# interrupted: {kept}{again}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def collect(
    folder: Annotated[Path, typer.Argument(help="for the records and the log")],
    tasks: Annotated[int, typer.Option(min=0, help="so many training tasks; 0: all")] = 0,
    random: Annotated[int, typer.Option(min=0, help="random programs of each task")] = 48,
    evolutionary: Annotated[int, typer.Option(min=0, help="evolved programs of each task")] = 64,
    level: Annotated[
        list[str] | None, typer.Option(help="x86-64-v3, ...; default: all that run here")
    ] = None,
    thread: Annotated[
        list[int] | None, typer.Option(help="thread counts; default: 1 and 2")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="begin no search after so many programs of this run")
    ] = None,
    executor: Annotated[str, typer.Option(help="local, or dask://HOST:PORT")] = "local",
    pack: Annotated[
        Path | None, typer.Option(help="measure nothing, write compressed files there")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Collect records of the training tasks; started again, it goes on where it stopped."""
    from tensorc.search import collect as collecting
    from tensorc.tasks import task_set

    with refusals(as_json), interruptible(folder):
        training = task_set().of_split("training")
        if pack is not None:
            written = [str(path) for path in collecting.pack(folder, training, pack)]
            emit({"written": written}) if as_json else typer.echo("\n".join(written))
            return
        tuners = [("random", random), ("evolutionary", evolutionary)]
        levels = collecting.runnable(level or collecting.LEVELS)
        chosen = training[: tasks or None]
        counts = thread or [1, 2]
        planned = list(collecting.jobs(chosen, levels, counts, [t for t in tuners if t[1]]))
        trials = collecting.collect(chosen, planned, folder, executor, limit, _say)
    emit({"trials": trials}) if as_json else typer.echo(f"{trials} trials")


def _say(done: Done) -> None:
    job = done.job
    best = "-" if done.best is None else f"{done.best * 1e6:.1f} us"
    what = f"{job.task} {job.target} {job.threads} {job.tuner}"
    counts = f"{done.ok} of {done.trials} ok, best {best}, {done.seconds:.1f} s {done.error}"
    typer.echo(f"# {what}: {counts}", err=True)
