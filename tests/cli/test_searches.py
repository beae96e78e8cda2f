"""`tensorc tune` and `tensorc collect`, on a measurer that makes times up and on a real one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner, Result

import tensorc as tc
from tensorc.cli import tune_table
from tensorc.cli.searches import app
from tensorc.cli.source import load_function
from tensorc.graph.kernels import build_kernels
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.records import read_records
from tensorc.search import together as together_module
from tensorc.search import tune as search_module
from tensorc.search.database import Database
from tensorc.space.space import Space
from tests.search.fake import FailingMeasurer, FakeMeasurer, losing, product

SOURCE = """
import tensorc as tc

def product():
    A, B = tc.placeholder((48, 48), "f32", name="A"), tc.placeholder((48, 48), "f32", name="B")
    k = tc.reduce_axis(48, name="k")
    C = tc.compute((48, 48), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="product")

def scheduled():
    schedule = tc.Schedule(product())
    schedule.reorder("j", "i")
    return schedule

@tc.func
def double(A: tc.Buffer["f32", "N", 64], B: tc.Buffer["f32", "N", 64, "out"]):
    for i in range(N):
        for j in range(64):
            B[i, j] = A[i, j] * 2.0
"""
TARGET = "cpu:x86-64-v3;cores=2"
(OPTIMUM,) = Space(product(), TARGET).sample("optimum")
TASK = "softmax.100x33"
PROGRAM = "from tensorc.cli import main; main()"

pytestmark = [
    # Torch's and its exporter's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> FakeMeasurer:
    return used(monkeypatch, FakeMeasurer(OPTIMUM))


def used(monkeypatch: pytest.MonkeyPatch, fake: FakeMeasurer) -> FakeMeasurer:
    for module in (together_module, search_module):
        monkeypatch.setattr(module, "measurer_of", lambda executor: fake)
    return fake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "programs.py"
    file.write_text(SOURCE)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.parametrize("tuner", ["default", "random", "evolutionary", "roller"])
def test_every_tuner_tunes_a_function(tuner: str, source: Path, measurer: FakeMeasurer) -> None:
    done = run("tune", f"{source}:product", "--tuner", tuner, "--trials", 6, "--threads", 1,
               "--target", TARGET, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (row,) = found["tasks"].values()
    assert list(found["tasks"]) == ["product"]
    assert row["trials"] == len(row["curve"]) == (1 if tuner == "default" else 6)
    assert row["median"] <= row["rules"]
    assert (found["estimated"], found["measured"]) == (None, None)
    assert "nothing was kept" in done.stderr


def test_a_pipe_gets_a_table_on_stdout_and_lines_on_stderr(
    source: Path, measurer: FakeMeasurer
) -> None:
    done = run("tune", f"{source}:product", "--tuner", "random", "--trials", 33, "--threads", 1)
    head, _, row = done.stdout.splitlines()
    assert head.split()[:4] == ["task", "runs", "trials", "ok"]
    assert row.split()[:3] == ["product", "1", "33"]
    lines = [line for line in done.stderr.splitlines() if "# product: " in line]
    assert [line.split(", ")[1] for line in lines] == ["trials 0", "trials 16", "trials 32"]
    assert not any("\x1b" in text for text in (done.stdout, done.stderr))


def test_a_terminal_gets_a_table_that_grows(
    source: Path, measurer: FakeMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(tune_table, "Console", lambda **options: console)
    assert run("tune", f"{source}:product", "--tuner", "random", "--trials", 9).exit_code == 0
    assert "9 of 9 trials" in screen.getvalue()
    assert "rules us" in screen.getvalue()


def test_no_command_is_named_that_would_take_the_steps_of_a_schedule(
    source: Path, tmp_path: Path, measurer: FakeMeasurer
) -> None:
    path = tmp_path / "records.jsonl"
    told = run("tune", f"{source}:scheduled", "--tuner", "random", "--records", path,
               "--threads", 1, "--trials", 2).stderr  # fmt: skip
    assert f"Database({str(path)!r}).schedule(func, tc.Target.parse('cpu'))" in told
    assert "tensorc bench" not in told


def test_a_search_goes_on_from_its_file(
    source: Path, tmp_path: Path, measurer: FakeMeasurer
) -> None:
    path = tmp_path / "records.jsonl"
    common = ("tune", f"{source}:product", "--tuner", "random", "--records", path, "--threads", 1)
    first = run(*common, "--trials", 5)
    assert f"TENSORC_DATABASE={path} tensorc bench {source}:product" in first.stderr
    assert f"Database({str(path)!r}).schedule(func, tc.Target.parse('cpu'))" in first.stderr
    assert len(measurer.measured) == 6
    second = run(*common, "--trials", 8)
    assert "known 5" not in second.stderr
    assert len(measurer.measured) == 9
    assert second.exit_code == 0
    again = run(*common, "--trials", 8, "--json")
    assert len(measurer.measured) == 9
    assert json.loads(again.stdout)["tasks"]["product"]["trials"] == 8


def test_records_of_a_function_serve_its_commands(
    source: Path, tmp_path: Path, measurer: FakeMeasurer
) -> None:
    path, subject = tmp_path / "records.jsonl", f"{source}:product"
    common = ("tune", subject, "--tuner", "random", "--trials", 20, "--records", path)
    assert run(*common, "--threads", 1).exit_code == 0
    target = tc.Target.parse("cpu")
    with tc.config.scope(database=path, num_threads=1):
        traced = run("replay", subject, "--python")
    known = Database(path).schedule(load_function(subject), target, 1)
    assert known is not None
    assert traced.stdout == known.trace.to_python() != run("replay", subject, "--python").stdout


def test_when_nothing_is_right_the_exit_code_says_so(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: how many were tried, what became of them, the first reason, and a flag."""
    used(monkeypatch, FailingMeasurer(OPTIMUM))
    done = run("tune", f"{source}:product", "--tuner", "random", "--trials", 64, "--threads", 1)
    assert done.exit_code == 1
    reason = "16 tried: 16 build error; first: there is no compiler"
    assert f"product: nothing was right; {reason}" in done.stdout
    data = run("tune", f"{source}:product", "--tuner", "random", "--threads", 1, "--json")
    assert data.exit_code == 1
    row = json.loads(data.stdout)["tasks"]["product"]
    assert (row["best"], row["rules"], row["summary"]) == (None, None, reason)


def test_an_executor_that_goes_away_is_one_message(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(monkeypatch, FakeMeasurer(OPTIMUM, losing(4)))
    path = tmp_path / "records.jsonl"
    done = run("tune", f"{source}:product", "--tuner", "random", "--records", path, "--threads", 1)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "the executor lost candidates" in done.stderr
    assert len(read_records(path)) == 4
    assert issubclass(MeasureError, tc.TensorcError)


def test_an_interrupt_says_what_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    used(monkeypatch, FakeMeasurer(OPTIMUM, interrupted))
    path = tmp_path / "records.jsonl"
    common = ("tune", f"{source}:product", "--tuner", "random", "--threads", 1)
    done = run(*common, "--records", path)
    assert done.exit_code == 130
    assert f"interrupted: {path} has what was measured; the same command goes on" in done.stderr
    assert len(read_records(path)) == 3
    used(monkeypatch, FakeMeasurer(OPTIMUM, interrupted))
    assert "interrupted: nothing was kept" in run(*common).stderr


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_the_best_time_is_plotted(
    suffix: str, source: Path, tmp_path: Path, measurer: FakeMeasurer
) -> None:
    picture = tmp_path / f"plot{suffix}"
    done = run("tune", f"{source}:product", "--tuner", "random", "--trials", 9, "--plot", picture,
               "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    data = picture.read_bytes()
    if suffix == ".png":
        assert data.startswith(b"\x89PNG")
        return
    curve = json.loads(data.decode().partition('id="seconds">')[2].partition("</script>")[0])
    assert curve == {"product": json.loads(done.stdout)["tasks"]["product"]["curve"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "there is no 'nosuch'; legal: a task"),
        (("x" * 300,), "there is no 'xxxx"),
        (("{source}:product", "--tuner", "lucky"), "legal: default, random, evolutionary, roller"),
        (("{source}:product", "--records", "none/a.jsonl"), "cannot be opened"),
        (("{source}:product", "--plot", "a.pdf"), "neither a .png nor an .html"),
        (("{source}:product", "--plot", "none/a.html"), "there is no folder none"),
        (("{source}:product", "--target", "cpu:none"), "none"),
        (("{source}:product", "--target", "cuda:sm_90"), "the CPU templates have no schedules"),
        (("{source}:product", "--layers", "2"), "is no network"),
        (("{source}:double",), "N is symbolic: give --size N=..."),
        (("{source}:double", "--size", "M=3"), "N is symbolic"),
        ((TASK, "--size", "N=3"), "has no symbolic sizes; got N=3"),
        (("mlp", "--layers", "2"), "mlp takes no number of layers"),
    ],
)
def test_bad_input_is_one_clear_message(
    arguments: tuple[str, ...], message: str, source: Path
) -> None:
    given = [one.format(source=source) for one in arguments]
    done = run("tune", *given)
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    data = run("tune", *given, "--json")
    assert message in json.loads(data.stdout)["error"]["report"]


# A network ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 40), nn.GELU(), nn.Linear(40, 7)]
    module, x = nn.Sequential(*layers).eval(), torch.randn(6, 40)
    path = tmp_path_factory.mktemp("networks") / "layers.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    return path, module, x


@pytest.mark.torch
def test_a_network_is_tuned_and_timed_before_and_after(
    network: tuple[Path, nn.Module, torch.Tensor], tmp_path: Path
) -> None:
    path, *_ = network
    records = tmp_path / "records.jsonl"
    with tc.config.scope(cache_dir=tmp_path / "cache", num_threads=1):
        done = run("tune", path, "--tuner", "random", "--trials", 3, "--threads", 1, "--records",
                   records, "--json")  # fmt: skip
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        first, last = found["tasks"].values()
        assert (first["runs"], last["runs"]) == (2, 1)
        assert first["trials"] + last["trials"] == 6
        for name in ("estimated", "measured"):
            assert set(found[name]) == {"rules", "tuned"}
            assert min(found[name].values()) > 0.0
        assert found["estimated"]["tuned"] == pytest.approx(2 * first["median"] + last["median"])
        assert found["estimated"]["tuned"] <= found["estimated"]["rules"]


@pytest.mark.torch
def test_a_tuned_network_has_the_schedules_that_were_found(
    network: tuple[Path, nn.Module, torch.Tensor], tmp_path: Path, measurer: FakeMeasurer
) -> None:
    path, module, x = network
    picture, records = tmp_path / "plot.html", tmp_path / "records.jsonl"
    target = tc.Target.parse("cpu")
    with tc.config.scope(cache_dir=tmp_path / "cache", num_threads=1):
        done = run("tune", path, "--tuner", "random", "--trials", 20, "--threads", 1, "--plot",
                   picture, "--records", records)  # fmt: skip
        assert done.exit_code == 0, done.output
        assert done.stdout.count("x\n") == 4
        assert '"all tasks"' in picture.read_text()
        with tc.config.scope(database=records):
            compiled = tc.compile(module, (x,))
            kernels = build_kernels([task.func for task in compiled.tasks], target)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    known = Database(records)
    for task, kernel in zip(compiled.tasks, kernels, strict=True):
        found = known.schedule(task.func, target, 1)
        assert found is not None
        assert kernel.module.func == found.func
        assert found.func != tc.default_schedule(task.func, target).func


# Collecting --------------------------------------------------------------------------------------


def test_collecting_goes_on_and_is_packed(tmp_path: Path, measurer: FakeMeasurer) -> None:
    folder = tmp_path / "records"
    common = ("collect", folder, "--tasks", 2, "--random", 3, "--evolutionary", 0, "--level",
              "x86-64-v2", "--thread", 1)  # fmt: skip
    first = run(*common, "--limit", 3)
    assert (first.exit_code, first.stdout) == (0, "3 trials\n"), first.output
    done = run(*common)
    assert (done.exit_code, done.stdout) == (0, "3 trials\n")
    assert done.stderr.count("# ") == 1
    assert "of 3 ok" in done.stderr
    assert run(*common).stdout == "0 trials\n"
    assert len(measurer.measured) == 6
    packed = run("collect", folder, "--pack", tmp_path / "packed", "--json")
    written = json.loads(packed.stdout)["written"]
    assert sum(len(read_records(path)) for path in written) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--level", "x86-64-v9"), "x86-64-v9"),
        (("--thread", "0"), "0 is not from 1 to"),
        (("--pack", "{folder}/packed"), "holds no records of these tasks"),
    ],
)
def test_what_cannot_be_collected_is_one_message(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = run("collect", tmp_path, *(one.format(folder=tmp_path) for one in arguments))
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert message in done.stderr


def test_a_real_search_that_is_interrupted_ends_at_once_and_goes_on(
    source: Path, tmp_path: Path
) -> None:
    path = tmp_path / "records.jsonl"
    command = [sys.executable, "-c", PROGRAM, "tune", f"{source}:product", "--tuner", "random",
               "--threads", "1", "--records", str(path)]  # fmt: skip
    running = subprocess.Popen(
        [*command, "--trials", "2000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | {"PYTHONFAULTHANDLER": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and (not path.exists() or len(read_records(path)) < 3):
        time.sleep(0.2)
    os.kill(running.pid, signal.SIGINT)
    try:
        # A process of its own that stays behind would hold the pipes open.
        out, errors = running.communicate(timeout=100)
    except subprocess.TimeoutExpired as late:
        gone = running.poll() is not None
        # One that is stuck writes down where its threads are.
        running.send_signal(signal.SIGABRT)
        told = [late.stderr] if gone else running.communicate(timeout=30)
        pytest.fail(f"it is {'gone, its pipes are held' if gone else 'stuck'}: {told}")
    assert (running.returncode, out) == (130, "")
    assert "the same command goes on" in errors
    before = len(read_records(path))
    assert before >= 3
    done = subprocess.run(
        [*command, "--trials", "2", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["tasks"]["product"]["trials"] == 2
