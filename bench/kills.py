"""Kills at random moments: of a search, of its processes, of a writer of records, of a collector.

    python -m bench.kills                  100 kills
    python -m bench.kills --count 12       fewer
    python -m bench.kills --seed 7 --json kills.json

A search measures candidates and appends their records. It, one of the processes that it builds or
runs in, another process that only appends to the same file, or a collector with its tuners, whose
measurer makes times up, gets a SIGKILL at a random moment. What was killed is started again and
leaves out what is recorded. In the end no record that was acknowledged is missing, none is there
twice, no line but the torn ones is bad, and nothing that was started still runs. Exits with 1
otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.runtime.measure.candidate import Candidate, Limits
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import RecordFile, read_records
from tensorc.target import Target

CANDIDATES = 100_000
"""More than a search ever gets through before it is stopped."""
KINDS = ("search", "builder", "runner", "writer", "writer", "collector")
LATEST = 0.5
"""Seconds after which a search is killed, counted from its first record, at most."""
START_SECONDS = 300.0

TEXT = """
def scale(A: Buffer["f32", {size}], C: Buffer["f32", {size}, "out"]):
    for i in range({size}):
        C[i] = A[i] * 2.0
"""


@dataclass(frozen=True, slots=True)
class Kills:
    """What became of a number of kills.

    `records` and `torn` count the lines of all files, `missing` the acknowledged records that are
    not in it, `twice` candidates with more than one, `killed` the measurements that ended with
    their process and are recorded as such, `alive` the processes that still run.
    """

    kills: int
    records: int
    missing: int
    twice: int
    torn: int
    killed: int
    alive: int
    seconds: float

    @property
    def passed(self) -> bool:
        # Whoever is killed within a write leaves one torn line.
        return not self.missing and not self.twice and not self.alive and self.torn <= self.kills


def candidates() -> Iterator[Candidate]:
    """Candidates that are told apart by their seeds."""
    task, target = parse(TEXT.format(size=256).strip()), Target.parse("cpu")
    for number in range(CANDIDATES):
        yield Candidate(task, target, seed=number)


def search(path: Path) -> None:
    """Measure what is not recorded yet; acknowledge each record by its seed, after its append."""
    # A writer needs none of what this imports, and starts in a fraction of the time.
    from tensorc.runtime.measure.local import LocalMeasurer

    done = {record.seed for record in read_records(path)} if path.exists() else set()
    limits = Limits(samples=1, least_samples=1, race=math.inf)
    with RecordFile(path) as file, LocalMeasurer(limits, builders=1) as measurer:
        left = [one for one in candidates() if one.seed not in done]
        for begin in range(0, len(left), 4):
            for record in measurer.measure(left[begin : begin + 4]):
                file.append(record)
                processes = (*measurer._builders, measurer._runner)
                pids = [p._running.pid if p._running is not None else 0 for p in processes]
                print(record.seed, *pids, flush=True)


def write(path: Path, first: int) -> None:
    """Append records without end, as fast as can be, and acknowledge each by its seed."""
    text = TEXT.format(size=256).strip()
    target = Target.parse("cpu:x86-64-v2")
    with RecordFile(path) as file:
        for seed in range(first, first + CANDIDATES):
            file.append(Record("0" * 64, text, target, 1, "", Outcome.OK, times=(1e-3,), seed=seed))
            print(seed, flush=True)


class MadeUp:
    """A measurer without a clock, which acknowledges a record once the next one is asked for: then
    it was appended."""

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        for one in candidates:
            made = Record(one.task, print_func(one.func), one.target, one.threads, one.steps,
                          Outcome.OK, times=(1e-6 * (1 + number_of(one.key) % 999),),
                          decisions=one.decisions, tuner=one.tuner, seed=one.seed)  # fmt: skip
            yield made
            print(number_of((made.key, made.tuner)), flush=True)


def number_of(key: object) -> int:
    """A number that tells records of a collector apart."""
    return int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16)


def collecting(folder: Path) -> None:
    """Collect records of all training tasks, or as many as there is time for."""
    from tensorc.search.collect import collect, jobs
    from tensorc.tasks import task_set

    tasks = task_set().of_split("training")
    planned = list(jobs(tasks, ("x86-64-v2",), (1, 2), (("random", 48), ("evolutionary", 24))))
    collect(tasks, planned, folder, MadeUp())  # type: ignore[arg-type]


def collected(folder: Path) -> tuple[Counter[int], int]:
    """The numbers of the records of a collector, and how many lines are bad."""
    files = [read_records(file) for file in sorted(folder.glob("*.jsonl"))]
    numbers = Counter(number_of((record.key, record.tuner)) for found in files for record in found)
    return numbers, sum(found.bad for found in files)


def kill(path: Path, count: int, seed: int) -> Kills:
    """Run searches and kill them, or their processes, so many times."""
    draw, begin = random.Random(seed), time.monotonic()
    folder = path.parent / "collected"
    acknowledged: set[int] = set()
    started: set[int] = set()
    kills = 0
    while kills < count:
        running = _Running("search", path)
        kind = ""
        while kills < count and kind != "search":
            seen, pids = running.read_until(time.monotonic() + draw.random() * LATEST)
            acknowledged |= seen
            started |= pids
            kind = draw.choice(KINDS)
            kills += 1
            if kind == "writer":
                writer = _Running("write", path, (kills + 1) * CANDIDATES)
                acknowledged |= writer.killed_at(draw.random() * LATEST)
            elif kind == "collector":
                acknowledged |= _Running("collecting", folder).killed_at(draw.random() * LATEST)
            elif kind != "search":
                pid = running.pids[kind == "runner"]
                # One that was killed and is not started again yet has no number, and the number
                # 0 would be this process and all that it has started.
                if pid and _is_ours(pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                else:
                    kills -= 1
        acknowledged |= running.kill()
    found = read_records(path)
    seeds, torn = collected(folder)
    seeds.update(record.seed for record in found if record.seed is not None)
    killed = sum(record.outcome is Outcome.CRASH for record in found)
    alive = _still_alive(started)
    return Kills(
        kills,
        seeds.total(),
        len(acknowledged - seeds.keys()),
        sum(number > 1 for number in seeds.values()),
        found.bad + torn,
        killed,
        alive,
        round(time.monotonic() - begin, 1),
    )


class _Running:
    """A function of this module in a process of its own, which says what it has appended."""

    def __init__(self, function: str, path: Path, *arguments: int):
        given = ", ".join((f"Path({str(path)!r})", *map(str, arguments)))
        program = f"import sys; sys.path[:] = {sys.path!r}\n"
        program += f"from bench.kills import *\n{function}({given})"
        self._process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._text = b""
        self.pids: list[int] = []
        self._first: set[int] = set()
        deadline = time.monotonic() + START_SECONDS
        while not self._first:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{function} does not start")
            self._first = self._read()
            time.sleep(0.005)

    def _read(self) -> set[int]:
        """The seeds acknowledged since the last time."""
        self._text += self._output.read() or b""
        *lines, self._text = self._text.split(b"\n")
        seeds = set()
        for line in lines:
            seed, *pids = map(int, line.split())
            seeds.add(seed)
            self.pids = pids
        return seeds

    def read_until(self, moment: float) -> tuple[set[int], set[int]]:
        seen, pids, self._first = set(self._first), set(self.pids), set()
        while time.monotonic() < moment:
            seen |= self._read()
            pids |= set(self.pids)
            time.sleep(0.001)
        return seen, pids

    def killed_at(self, seconds: float) -> set[int]:
        """Kill it after so many seconds; what it has acknowledged until then."""
        seen, _ = self.read_until(time.monotonic() + seconds)
        return seen | self.kill()

    def kill(self) -> set[int]:
        self._process.kill()
        self._process.wait()
        os.set_blocking(self._output.fileno(), True)
        seen = self._read()
        self._output.close()
        return seen


def _still_alive(pids: set[int]) -> int:
    """How many processes live on after those that started them, some seconds later."""
    deadline = time.monotonic() + 30.0
    while True:
        alive = [pid for pid in pids if pid and _is_ours(pid)]
        if not alive or time.monotonic() > deadline:
            return len(alive)
        time.sleep(0.1)


def _is_ours(pid: int) -> bool:
    try:
        return b"tensorc.runtime.measure.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills = kill(Path(folder) / "records.jsonl", given.count, given.seed)
    data = asdict(kills)
    print("\n".join(f"{name:8} {value}" for name, value in data.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(data) + "\n")
    return 0 if kills.passed else 1


if __name__ == "__main__":
    sys.exit(main())
