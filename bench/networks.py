"""The six networks end to end, beside torch eager, ONNX Runtime and `torch.compile`.

    python -m bench.networks                          all six, two threads
    python -m bench.networks --only resnet50,gpt2     some of them
    python -m bench.networks --inductor               with torch.compile, which takes a minute each
    python -m bench.networks --json networks.json     the figures as data

Each network runs in a process of its own, with an empty cache: what it took to compile is what it
takes the first time. All that can run it take turns there, 30 rounds (LLaMA: 10). Ratios are how
many times ours is as fast as a peer; `error` is the relative norm of the difference from torch;
`memory` how much the process grew for a runner, from before it was made to the peak of a call, the
weights that torch holds not counted. ONNX Runtime gets what `torch.onnx.export` makes, and all get
as many threads.

Every file that enters the cache is watched: none may be written twice.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import harness

# isort: split
from bench.compare import heading
from tensorc.graph.networks import RECIPES

ROUNDS = {"llama-7b": 10}
# Seconds in which a network is to be compiled, its cache being empty.
MOST_SECONDS = {"resnet50": 20}
MOST_SECONDS_OF_OTHERS = 30
MOST_ERROR = 1e-4


@dataclass(frozen=True, slots=True)
class Row:
    """One runner of one network. Times in milliseconds, memory in megabytes."""

    network: str
    runner: str
    best: float
    median: float
    best_ratio: float
    median_ratio: float
    error: float
    memory: float
    made_s: float
    first: float


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a network: seconds, kilobytes of machine code, megabytes for values.

    `programs` were compiled: the tasks, what packs weights, what computes constants, the driver.
    """

    network: str
    tasks: int
    calls: int
    programs: int
    import_s: float
    compile_s: float
    wanted_s: float
    code: float
    values: float


def main() -> int:
    options = _arguments()
    if options.child:
        return _child(options)
    head = heading(threads=options.threads)
    found = {name: _run(name, options) for name in options.only}
    results = {name: one for name, one in found.items() if one is not None}
    print(head)
    for rows in (
        [row for one in results.values() for row in _rows(one)],
        [_made(one) for one in results.values()],
    ):
        print(harness.table(rows), end="\n\n")
    faults = [fault for one in results.values() for fault in _faults(one)]
    print(*_means(results), *faults, f"load at the end: {heading()}", sep="\n")
    if options.json:
        record = {"machine": head, "networks": results, "means": _means(results)}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if faults or len(results) < len(found) else 0


def _arguments() -> argparse.Namespace:
    parser = harness.arguments(__doc__)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--only", type=names, default=list(RECIPES), metavar="NAME,...")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--inductor", action="store_true", help="torch.compile, too")
    parser.add_argument("--layers", type=int, default=2, help="of LLaMA")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.only:
        if name not in RECIPES:
            parser.error(f"there is no {name!r}; legal here: {', '.join(RECIPES)}")
    return options


# A network in a process of its own --------------------------------------------------------------


def _run(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """The figures of a network; None when its process failed, which then said why."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [
            sys.executable, "-m", "bench.networks", "--child", "--only", name,
            "--threads", str(options.threads), "--layers", str(options.layers),
            "--repeats", str(min(options.repeats, ROUNDS.get(name, options.repeats))),
            "--json", str(result), *(["--inductor"] if options.inductor else []),
        ]  # fmt: skip
        environment = {
            **os.environ,
            "TENSORC_CACHE_DIR": str(Path(folder) / "cache"),
            "TENSORC_NUM_THREADS": str(options.threads),
        }
        print(f"# {name}", file=sys.stderr, flush=True)
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            print(f"# {name} failed with exit code {done.returncode}", file=sys.stderr)
            return None
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def _child(options: argparse.Namespace) -> int:
    from tensorc import config
    from tensorc.cli.run import run_network
    from tensorc.cli.subject import subject

    (name,) = options.only
    say = lambda text: print(f"#   {text}", file=sys.stderr, flush=True)  # noqa: E731
    peers = ["torch", "onnxruntime", *(["torch.compile"] if options.inductor else [])]
    made = subject(name, **({"num_hidden_layers": options.layers} if name == "llama-7b" else {}))
    writes = Writes(config.cache_dir / "compiled")
    found = run_network(made, peers, options.threads, say, options.repeats)
    if found.failed:
        print(found.summary(), file=sys.stderr)
        return 1
    figures = {**found.as_dict(), "written": writes.counts()}
    options.json.write_text(json.dumps(figures))
    return 0


class Writes:
    """Which files were given their final name in a folder, and how often; Linux tells
    (inotify(7))."""

    MOVED_TO = 0x80
    NONBLOCK = 0o4000
    EVENT = struct.Struct("iIII")

    def __init__(self, folder: Path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        library = ctypes.CDLL(None, use_errno=True)
        self._events = library.inotify_init1(self.NONBLOCK)
        watch = library.inotify_add_watch(self._events, os.fsencode(folder), self.MOVED_TO)
        if self._events < 0 or watch < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}")

    def counts(self) -> dict[str, int]:
        """How often each file was written since the watch began, or since the last call."""
        found: Counter[str] = Counter()
        while True:
            try:
                data = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return dict(found)
            place = 0
            while place < len(data):
                *_, length = self.EVENT.unpack_from(data, place)
                place += self.EVENT.size
                found[data[place : place + length].rstrip(b"\0").decode()] += 1
                place += length


# Figures ------------------------------------------------------------------------------------------


def _rows(found: Mapping[str, Any]) -> list[Row]:
    ours = found["runners"]["tensorc"]
    return [
        Row(
            found["network"],
            name,
            1e3 * one["best"],
            1e3 * one["median"],
            one["best"] / ours["best"],
            one["median"] / ours["median"],
            math.nan if one["error"] is None else one["error"],
            math.nan if one["memory"] is None else one["memory"] / 1e6,
            one["made"],
            1e3 * one["first"],
        )
        for name, one in found["runners"].items()
    ]


def _made(found: Mapping[str, Any]) -> Made:
    return Made(
        found["network"],
        len(found["tasks"]),
        sum(task["calls"] for task in found["tasks"]),
        len(found["written"]),
        found["import_seconds"],
        found["runners"]["tensorc"]["made"],
        MOST_SECONDS.get(found["network"], MOST_SECONDS_OF_OTHERS),
        found["code_bytes"] / 1e3,
        found["arena_bytes"] / 1e6,
    )


def _faults(found: Mapping[str, Any]) -> list[str]:
    """What must not be, whatever the machine is doing."""
    name, error = found["network"], found["runners"]["tensorc"]["error"]
    twice = [file for file, count in found["written"].items() if count > 1]
    faults = []
    if not error <= MOST_ERROR:
        faults.append(f"FAULT: {name} differs from torch by {error:.2e}")
    if not found["cold"]:
        faults.append(f"FAULT: the cache was not empty before {name} was compiled")
    if twice:
        faults.append(f"FAULT: {len(twice)} programs of {name} were compiled twice")
    if len(found["written"]) < len(found["tasks"]):
        faults.append(f"FAULT: {name} has more tasks than programs were compiled")
    return faults


def _means(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Geometric means of ratios over the networks, for each peer."""
    rows = [row for one in results.values() for row in _rows(one) if row.runner != "tensorc"]
    lines = []
    for peer in dict.fromkeys(row.runner for row in rows):
        own = [row for row in rows if row.runner == peer]
        best, median = (
            _geometric_mean([getattr(row, field) for row in own])
            for field in ("best_ratio", "median_ratio")
        )
        lines.append(f"{best:.2f}x {peer} (median {median:.2f}x), mean of {len(own)} networks")
    return lines


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    sys.exit(main())
