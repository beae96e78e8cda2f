"""What the language model costs on one core: to write sentences, and to learn.

    python -m bench.tlm                        the table, with random weights
    python -m bench.tlm --weights FILE         with trained ones
    python -m bench.tlm --json tlm.json        the same figures as data

Times are those of the thread's own clock, which other processes hardly disturb: medians over tasks
of the test set, of one sentence, of the best of 16, and of what comes before (facts and prompt),
with the network in PyTorch and with the one on our own kernels, in turns.
Learning is counted in tokens a second, of batches of the same size as in a training, whose lessons
are random sentences with made-up throughputs; what fills up a batch is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.harness import arguments, report

# isort: split
import torch

from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tlm import weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.lessons import Group, lessons
from tensorc.tlm.model import Model, Shape, one_thread
from tensorc.tlm.native import Native
from tensorc.tlm.sentence import prompt
from tensorc.tlm.train import Settings, Training
from tensorc.tlm.vocabulary import vocabulary

TARGET = Target.parse("cpu:x86-64-v3;cores=2")
STEPS = 4
BEST = "best of 16"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure."""

    what: str
    value: float
    unit: str


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its milliseconds."""
    start = time.thread_time()
    found = function()
    return found, 1e3 * (time.thread_time() - start)


def writing(writers: dict[str, Writer], count: int) -> list[Row]:
    """Medians over so many tasks of the test set, and the slowest of the best of 16."""
    tasks = task_set().of_split("test")
    before: list[float] = []
    times = {(what, name): list[float]() for what in ("one sentence", BEST) for name in writers}
    for task in tasks[:: max(len(tasks) // count, 1)]:
        func = task.func
        (space, read), taken = timed(lambda f=func: (Space(f, TARGET), prompt(f, TARGET)))
        before.append(taken)
        for writer in writers.values():
            writer.write(space, read)  # what is looked up for the first time
        for name, writer in writers.items():
            found = timed(lambda w=writer, s=space, p=read: w.write(s, p))[1]
            times["one sentence", name].append(found)
        for name, writer in writers.items():
            found = timed(lambda w=writer, s=space, p=read: w.best(s, p))[1]
            times[BEST, name].append(found)
    rows = [Row("facts and prompt, median", statistics.median(before), "ms")]
    for (what, name), own in times.items():
        rows.append(Row(f"{what}, {name}, median", statistics.median(own), "ms"))
    return [*rows, *(Row(f"{BEST}, {n}, slowest", max(times[BEST, n]), "ms") for n in writers)]


def learning(shape: Shape) -> list[Row]:
    """Tokens a second, of some steps of training."""
    groups = []
    for number, task in enumerate(task_set().of_split("training")[::30]):
        known = dict.fromkeys(one.record for one in Space(task.func, TARGET).sample(number, 24))
        rates = [1.0 - n / (2 * len(known)) for n in range(len(known))]
        groups.append(Group(task.func, TARGET, 2, tuple(known), tuple(rates)))
    with TemporaryDirectory() as folder, one_thread():
        made = list(lessons(groups))
        training = Training(made, Path(folder), Settings(steps=STEPS, every=STEPS), shape)
        start = time.thread_time()
        training.run()
        seconds = time.thread_time() - start
    return [
        Row("training", training.tokens / seconds, "tokens/s"),
        Row("weights", training.model.parameters_count / 1e6, "million"),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--weights", type=Path, help="trained ones; random ones by default")
    parser.add_argument("--tasks", type=int, default=24, help="of the test set")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Model(Shape(len(vocabulary())))
    if options.weights is not None:
        model = weights.load(options.weights).model
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    writers = {"torch": Writer(model), "native": Writer(Native(model.shape, tensors))}
    rows = [*writing(writers, options.tasks), *learning(model.shape)]
    report(Target.parse("cpu").describe(), rows, options.json)


if __name__ == "__main__":
    main()
