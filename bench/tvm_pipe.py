"""Two processes in turns: ours, and one of TVM's environment that holds a kernel of TVM's.

`served` starts the other one. It loads the kernel, leaves the results of a first call in a file,
and then answers each line it is sent, a number of calls, by seconds. Neither TVM nor tensorc is
needed on this side; the other one needs `bench.tvm_side`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from bench import harness

# isort: split
import numpy as np

READY = "ready"

Sampler = Callable[[int], float]
"""Seconds of one call, from so many calls in a row behind one that is not counted."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What TVM's process is asked for.

    Attributes:
        name: of a workload of `bench.tvm_side`, or of what `program` holds.
        folder: what tuning left; "" for the program as it stands, without a schedule.
        program: the file of a TensorIR function, or "" for a workload.
        constants: the positions of inputs that are weights, of which there are so many `copies`;
            each call reads the next one.
    """

    name: str
    folder: str
    program: str = ""
    constants: tuple[int, ...] = ()
    copies: int = 1


# Turns -------------------------------------------------------------------------------------------


def sampler(run: Callable[[], object], *, processor: bool = False) -> Sampler:
    """By the clock, or by this thread's time on the processor."""
    clock = time.thread_time if processor else time.perf_counter

    def sample(calls: int) -> float:
        run()
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls

    return sample


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """A call of one after the other, again and again."""
    if len(calls) == 1:
        return calls[0]
    following = itertools.cycle(calls)

    def run() -> object:
        return next(following)()

    return run


def turns(samplers: Mapping[str, Sampler], rounds: int, rest: float) -> dict[str, list[float]]:
    """The samples of each, taken in turns; every round starts with another one."""
    calls = {name: _calls(sample) for name, sample in samplers.items()}
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    order = list(samplers)
    for _ in range(rounds):
        for name in order:
            time.sleep(rest)
            samples[name].append(samplers[name](calls[name]))
        order.append(order.pop(0))
    return samples


def _calls(sample: Sampler) -> int:
    """How many calls take the seconds of a sample, at least one."""
    calls = 1
    while (seconds := sample(calls) * calls) < harness.SAMPLE_SECONDS / 2:
        calls *= 2
    return max(1, round(calls * harness.SAMPLE_SECONDS / seconds))


# Our end -----------------------------------------------------------------------------------------


@contextmanager
def served(
    kernel: Kernel,
    python: str,
    threads: int,
    inputs: Sequence[np.ndarray],
    *,
    processor: bool = False,
) -> Iterator[tuple[Sampler, list[np.ndarray]]]:
    """A process of TVM's that holds a kernel: its sampler and its results.

    Raises:
        RuntimeError: the process ended; it said why.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / file) for file in ("inputs.npz", "results.npz")]
        np.savez(files[0], *inputs)
        command = [python, "-m", "bench.tvm_pipe", "--kernel", json.dumps(asdict(kernel)),
                   "--inputs", files[0], "--results", files[1],
                   *(["--processor-time"] if processor else [])]  # fmt: skip
        environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            _answer(kernel.name, process.stdout)
            with np.load(files[1]) as stored:
                results = [stored[name] for name in stored.files]
            yield _remote(kernel.name, process.stdin, process.stdout), results


def _remote(name: str, questions: TextIO, answers: TextIO) -> Sampler:
    def sample(calls: int) -> float:
        print(calls, file=questions, flush=True)
        return float(_answer(name, answers))

    return sample


def _answer(name: str, answers: TextIO) -> str:
    line = answers.readline()
    if not line:
        raise RuntimeError(f"TVM's process for {name} ended before it answered")
    return line.strip()


# TVM's end ---------------------------------------------------------------------------------------


def serve(options: argparse.Namespace) -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # what TVM prints is no answer
        from bench import tvm_side

        with np.load(options.inputs) as stored:
            inputs = [stored[name] for name in stored.files]
        calls, results = tvm_side.kernel(options.kernel, inputs)
        calls[0]()
        np.savez(options.results, *(result.numpy() for result in results))
        sample = sampler(in_turn(calls), processor=options.processor_time)
        print(READY, file=answers)
        for line in sys.stdin:
            print(sample(int(line)), file=answers)


def _kernel(text: str) -> Kernel:
    record: dict[str, Any] = json.loads(text)
    return Kernel(**{**record, "constants": tuple(record["constants"])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", type=_kernel, required=True, metavar="JSON")
    parser.add_argument("--inputs", type=Path, required=True, metavar="FILE")
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--processor-time", action="store_true")
    serve(parser.parse_args())


if __name__ == "__main__":
    main()
