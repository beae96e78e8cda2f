"""The tasks of a network: what each is, what it costs at least, and how far it is from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorc import config
from tensorc.cli.run import profile_of, task_row
from tensorc.cli.subject import Subject
from tensorc.graph.compile import compile_network, partitioned
from tensorc.graph.kernels import DEFAULT
from tensorc.graph.reports import Profile, TaskTime, si, text_table
from tensorc.graph.tasks import Task
from tensorc.ir.words import counted
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class TaskList:
    """The tasks of a network, those that take longest first; without times in order of calls."""

    network: str
    threads: int
    tasks: tuple[Task, ...]
    profile: Profile | None

    @property
    def rows(self) -> list[TaskTime]:
        if self.profile is not None:
            return list(self.profile.tasks)
        return [TaskTime(task, 0.0, 0.0, None) for task in self.tasks]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, times null where none were taken."""
        rows = [task_row(one) for one in self.rows]
        if self.profile is None:
            rows = [{**row, "best": None, "median": None} for row in rows]
        return {
            "network": self.network,
            "threads": self.threads,
            "flops": sum(task.count * task.flops for task in self.tasks),
            "bytes": sum(task.count * task.bytes for task in self.tasks),
            "tasks": rows,
        }

    def __str__(self) -> str:
        timed = ("best ms", "% time", "x roof") if self.profile is not None else ()
        head = (*timed, "calls", "FLOP", "bytes", "operators", "parameters")
        table = text_table(head, [self._row(one) for one in self.rows])
        calls = sum(task.count for task in self.tasks)
        flops = sum(task.count * task.flops for task in self.tasks)
        total = ", ".join(
            (counted(len(self.tasks), "task"), counted(calls, "call"), f"{si(flops)}FLOP")
        )
        if self.profile is None:
            return f"{table}\n{total}"
        peaks = self.profile
        roof = (
            f"x roof: times what {(peaks.peak_flops or 0.0) / 1e9:.0f} GFLOP/s and"
            f" {(peaks.bandwidth or 0.0) / 1e9:.1f} GB/s allow,"
            f" on {counted(self.threads, 'thread')}"
        )
        return f"{table}\n{total}, {peaks.best * 1e3:.3f} ms\n{roof}"

    def _row(self, one: TaskTime) -> tuple[str, ...]:
        task = one.task
        cost = (str(task.count), si(task.flops), si(task.bytes), task.label, task.shape)
        if self.profile is None:
            return cost
        share = one.share_of_roofline
        return (
            f"{one.best * 1e3:.3f}",
            f"{100 * one.best / self.profile.best:.1f}" if self.profile.best else "",
            f"{1 / share:.1f}" if share else "",
            *cost,
        )


def list_tasks(subject: Subject, threads: int, timed: bool, scheduler: str = DEFAULT) -> TaskList:
    """The tasks of a network; with times, it is compiled and run."""
    target = Target.parse("cpu")
    with config.scope(num_threads=threads):
        if not timed:
            _, parts = partitioned(subject.network, target)
            return TaskList(subject.name, threads, parts.tasks, None)
        network = compile_network(subject.network, target, scheduler)
        profile = profile_of(subject, network, threads)
    return TaskList(subject.name, threads, network.tasks, profile)
