"""The commands. Tables and colours on a terminal, plain text in a pipe, data with `--json`."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

import tensorc
from tensorc.cli.refusals import emit, refusal, refusals
from tensorc.cli.source import prepared
from tensorc.config import DEFAULT_SCHEDULER, MAX_THREADS
from tensorc.errors import ArgumentError, ScheduleError
from tensorc.ir.print import print_func
from tensorc.schedule.trace import call

if TYPE_CHECKING:
    from tensorc.cli.subject import Subject

app = typer.Typer(
    help="A tensor compiler: loop nests, checked schedules, machine code.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="FILE.py:NAME of a Func or Schedule, or a text file; -: standard input",
    ),
]
Trace = Annotated[
    str | None, typer.Option(help="a trace, .json or .py; default: the schedule's, or the rules'")
]
Target = Annotated[str, typer.Option(help="cpu, cpu:x86-64-v3, ...")]
After = Annotated[
    str | None, typer.Option(help="print the graph after this pass; import: before the first")
]
AsJson = Annotated[bool, typer.Option("--json", help="print data instead of text")]
Threads = Annotated[int, typer.Option(min=0, max=MAX_THREADS, help="worker threads; 0: all")]
Repeats = Annotated[int, typer.Option(min=1, help="calls of each that are timed")]
NetworkName = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="resnet50, mobilenetv2, efficientnet-b0, bert-base, gpt2, llama-7b, mlp, attention,"
        " or a .pt2 or .onnx file",
    ),
]
Compare = Annotated[str, typer.Option(help="torch,onnxruntime,torch.compile or some of these")]
Rounds = Annotated[int, typer.Option(min=1, help="calls of each that are timed, in turns")]
Layers = Annotated[int | None, typer.Option(min=1, help="layers of a network of text; LLaMA: 2")]
Scheduler = Annotated[
    str,
    typer.Option(
        help="rules, tlm (the language model), none, or default: what TENSORC_SCHEDULER says, else"
        f" {DEFAULT_SCHEDULER}"
    ),
]
Cold = Annotated[bool, typer.Option("--cold", help="compile all, with an empty cache")]
Timed = Annotated[bool, typer.Option("--time/--no-time", help="take times, or list alone")]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="N=64", help="a symbolic size; repeatable")
]
Dimensions = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="batch=1", help="a symbolic dimension of ONNX's; repeatable"),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tensorc {tensorc.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="print the version and exit"
        ),
    ] = False,
) -> None:
    """A tensor compiler: loop nests, checked schedules, machine code."""


def nest(text: str) -> None:
    """Print a nest, in colour on a terminal."""
    if console.is_terminal:
        console.print(Syntax(text, "python", background_color="default"))
    else:
        typer.echo(text)


@app.command()
def run(network: NetworkName, compare: Compare = "", threads: Threads = 0, rounds: Rounds = 30,
        layers: Layers = None, size: Dimensions = None, cold: Cold = False,
        scheduler: Scheduler = "default", as_json: AsJson = False) -> None:  # fmt: skip
    """Compile a network, run it beside others in turns, and show where the time went."""
    from tensorc import config
    from tensorc.cli.peers import PEERS
    from tensorc.cli.run import run_network

    peers = list(dict.fromkeys(name.strip() for name in compare.split(",") if name.strip()))
    for name in peers:
        if name not in PEERS:
            legal = ", ".join(PEERS)
            raise typer.BadParameter(f"cannot compare with {name!r}; legal here: {legal}")
    with refusals(as_json), progress() as say:
        say(f"building {network}")
        made = subject_of(network, size, layers)
        found = run_network(
            made, peers, threads or config.num_threads, say, rounds, cold, scheduler
        )
    if as_json:
        emit(found.as_dict())
        return
    typer.echo(str(found.profile))
    typer.echo("")
    typer.echo(found.summary())


@app.command()
def demo(network: NetworkName = "resnet50", threads: Threads = 0, rounds: Rounds = 30,
         trials: Annotated[int, typer.Option(min=1, help="measured of a task")] = 10,
         seconds: Annotated[float, typer.Option(help="then no further task is measured")] = 40.0,
         layers: Layers = None, size: Dimensions = None, as_json: AsJson = False,
         ) -> None:  # fmt: skip
    """A network by the rules, by the language model, by ONNX Runtime and by torch: one table."""
    from tensorc import config
    from tensorc.cli.demo import Wanted, demonstrate

    with refusals(as_json), progress() as say:
        wanted = Wanted(threads or config.num_threads, rounds, trials, seconds)
        say(f"building {network}")
        found = demonstrate(subject_of(network, size, layers), wanted, say)
    if as_json:
        emit(found.as_dict())
    else:
        typer.echo(str(found))
    if found.wrong:
        raise typer.Exit(1)


@app.command()
def tasks(network: NetworkName, time: Timed = True, threads: Threads = 0, layers: Layers = None,
          size: Dimensions = None, scheduler: Scheduler = "default", as_json: AsJson = False,
          ) -> None:  # fmt: skip
    """List the tasks of a network: what each is, costs at least, and takes."""
    from tensorc import config
    from tensorc.cli.tasks import list_tasks

    with refusals(as_json), progress() as say:
        say(f"building {network}")
        made = subject_of(network, size, layers)
        say(f"compiling {network}")
        found = list_tasks(made, threads or config.num_threads, time, scheduler)
    if as_json:
        emit(found.as_dict())
    else:
        typer.echo(str(found))


@app.command()
def passes(network: NetworkName, after: After = None, target: Target = "cpu", layers: Layers = None,
           size: Dimensions = None, as_json: AsJson = False) -> None:  # fmt: skip
    """List what each graph pass makes of a network, or print the graph after one of them."""
    from tensorc.cli.passes import list_passes
    from tensorc.target import Target as Machine

    with refusals(as_json), progress() as say:
        say(f"building {network}")
        made = subject_of(network, size, layers)
        found = list_passes(made, Machine.parse(target))
        graph = found.after(after) if after else None
    if graph is not None:
        emit({"graph": str(graph)}) if as_json else typer.echo(str(graph))
    elif as_json:
        emit(found.as_dict())
    else:
        typer.echo(str(found))


def subject_of(network: str, sizes: list[str] | None, layers: int | None) -> Subject:
    """The network of a command, with the sizes and the layers that it asks for."""
    from tensorc.cli.bench import sizes_of
    from tensorc.cli.subject import subject

    options = {} if layers is None else {"num_hidden_layers": layers}
    try:
        return subject(network, sizes=sizes_of(sizes or []), **options)
    except ArgumentError as error:
        if error.argument != "options":
            raise
        raise ArgumentError("layers", f"{network} takes no number of layers") from error


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """What a command is doing: one line on a terminal, else a line each on stderr."""
    errors = Console(stderr=True)
    if errors.is_terminal:
        with errors.status("") as status:
            yield status.update
    else:
        yield lambda text: typer.echo(f"# {text}", err=True)


@app.command()
def bench(source: Source, trace: Trace = None, target: Target = "cpu", size: Sizes = None,
          repeats: Repeats = 30, as_json: AsJson = False) -> None:  # fmt: skip
    """Time a function as scheduled against its plain nest, in turns, on random data."""
    from tensorc.cli.bench import bench_function, sizes_of

    with refusals(as_json):
        schedule, steps = prepared(source, trace, target)
        found = bench_function(schedule, steps, repeats, sizes_of(size or []))
    if as_json:
        emit(found)
        return
    for name, row in found.items():
        typer.echo(
            f"{name:>9}: best {row['best'] * 1e6:10.1f} us, median {row['median'] * 1e6:10.1f} us"
        )


@app.command()
def show(source: Source, trace: Trace = None, target: Target = "cpu", as_json: AsJson = False,
         ) -> None:  # fmt: skip
    """Print a nest before, between and after the steps of a trace."""
    with refusals(as_json):
        schedule, steps = prepared(source, trace, target)
        before = print_func(schedule.func)
        records: list[dict[str, str]] = [{"step": "", "nest": before}]
        for step, span in steps.placed():
            schedule.apply(step, span)
            records.append({"step": call(step), "nest": print_func(schedule.func)})
    if as_json:
        emit(records)
        return
    nest(before)
    for number, (old, new) in enumerate(itertools.pairwise(records), 1):
        console.rule(f"step {number}: {new['step']}") if console.is_terminal else typer.echo(
            f"# step {number}: {new['step']}"
        )
        for line in _changes(old["nest"], new["nest"]):
            style = {"+": "green", "-": "red"}.get(line[:1], "dim")
            console.print(line, style=style, markup=False, soft_wrap=True)
    typer.echo("")
    nest(records[-1]["nest"])


def _changes(before: str, after: str) -> Iterator[str]:
    """The changed lines and one line around them, marked + and -."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    for line in lines:
        if not line.startswith(("---", "+++")):
            yield "..." if line.startswith("@@") else line


@app.command()
def check(source: Source, trace: Trace = None, target: Target = "cpu", as_json: AsJson = False,
          ) -> None:  # fmt: skip
    """Check the steps of a trace, one by one; exit code 1 at the first that is refused."""
    with refusals(as_json):
        schedule, steps = prepared(source, trace, target)
    results, failed = [], None
    for step, span in steps.placed():
        try:
            schedule.apply(step, span)
        except ScheduleError as error:
            failed = error
            results.append({"step": call(step), "ok": False, **refusal(error)})
            break
        results.append({"step": call(step), "ok": True})
    if as_json:
        emit({"steps": results, "legal": failed is None})
    else:
        for number, result in enumerate(results, 1):
            typer.echo(f"{'ok     ' if result['ok'] else 'REFUSED'}  {number:3d}  {result['step']}")
        if failed is not None:
            typer.echo("")
            typer.echo(str(failed))
    if failed is not None:
        raise typer.Exit(1)


@app.command()
def replay(source: Source, trace: Trace = None, target: Target = "cpu", python: bool = False,
           as_json: AsJson = False) -> None:  # fmt: skip
    """Apply a trace and print the nest that it gives; --python prints the trace as source."""
    with refusals(as_json):
        schedule, steps = prepared(source, trace, target)
        schedule.replay(steps)
    if as_json:
        emit({"nest": print_func(schedule.func), "trace": json.loads(schedule.trace.to_json())})
    elif python:
        typer.echo(schedule.trace.to_python(), nl=False)
    else:
        nest(print_func(schedule.func))


@app.command("compile")
def compile_(source: Source, output: Annotated[Path, typer.Option("-o", "--output")],
             trace: Trace = None, target: Target = "cpu", as_json: AsJson = False,
             ) -> None:  # fmt: skip
    """Compile a function to an object, a library or a header, by the suffix of the output."""
    from tensorc.runtime.module import build

    with refusals(as_json):
        schedule, steps = prepared(source, trace, target)
        schedule.replay(steps)
        module = build(schedule)
        try:
            written = [str(path) for path in module.save(output)]
        except OSError as error:
            raise ArgumentError("output", f"{output} cannot be written: {error}") from error
    if as_json:
        signature = str(module.signature)
        emit({"written": written, "signature": signature, "target": module.target.describe()})
    else:
        typer.echo(f"wrote {' and '.join(written)}")


@app.command()
def explain(source: Source, trace: Trace = None, target: Target = "cpu",
            scheduler: Annotated[
                str, typer.Option(help="default, or tlm: also why the model decides as it does")
            ] = "default", as_json: AsJson = False) -> None:  # fmt: skip
    """Print each lowering stage, the code, and the hot loop's cost."""
    from tensorc.cli.explain import explanation
    from tensorc.cli.why import decided

    with refusals(as_json):
        why, schedule, steps = decided(source, trace, target, scheduler)
        schedule.replay(steps)
        found = explanation(schedule)
    if as_json:
        emit({**why.as_dict(), **found.as_dict()})
        return
    for title, text in (*why.sections(), *found.sections()):
        console.rule(title) if console.is_terminal else typer.echo(f"# {title}")
        typer.echo(text)


@app.command()
def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="PTX, or CUDA C++ (.cu)")],
    grid: Annotated[str, typer.Option(help="blocks: 64 or 4,4")],
    block: Annotated[str, typer.Option(help="threads of a block: 256 or 16,16")],
    arg: Annotated[
        list[str] | None,
        typer.Option(help="FILE.npy, f32[64,64], f32[64]:undefined, i32:64; one a parameter"),
    ] = None,
    kernel: Annotated[str, typer.Option(help="its name, where the file has several")] = "",
    shared: Annotated[int, typer.Option(min=0, help="bytes of dynamic shared memory")] = 0,
    detect: Annotated[bool, typer.Option(help="look for races and undefined reads")] = True,
    counters: Annotated[bool, typer.Option(help="count bank conflicts and sectors")] = False,
    order: Annotated[str, typer.Option(help="sequential, reverse or random")] = "sequential",
    seed: Annotated[int, typer.Option(min=0, help="of the order and of made-up inputs")] = 0,
    arch: Annotated[str, typer.Option(help="what CUDA C++ is compiled for")] = "sm_90",
    save: Annotated[list[str] | None, typer.Option(help="2=out.npy: argument 2 after")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a CUDA kernel on the CPU and report what is wrong with it; exit code 1 if anything is."""
    from tensorc.cli.emulate import Options, emulate_file
    from tensorc.emulator import by_line

    options = Options(kernel, shared, detect, counters, order, seed, arch, tuple(save or ()))
    with refusals(as_json):
        found = emulate_file(file, grid, block, arg or (), options)
    if as_json:
        emit(found.as_dict())
    else:
        typer.echo(str(found))
        for line in by_line(found.counters):
            typer.echo(str(line))
    if found.findings:
        raise typer.Exit(1)
