"""The task set: programs to learn schedules from, and to judge them by, in a split that is fixed.

Its tasks are those of six networks in several sizes and of families of operators. They are stored
as text, so that a task is the same whoever loads it and nothing but the IR is needed to load it;
`python -m bench.task_set` makes them anew.
"""

from tensorc.tasks.split import HELD_FAMILIES, HELD_NETWORKS, SPLITS, Split
from tensorc.tasks.structure import largest_extent, structure
from tensorc.tasks.task_set import BALANCE, KnownTask, TaskSet, task_set

__all__ = [
    "BALANCE",
    "HELD_FAMILIES",
    "HELD_NETWORKS",
    "SPLITS",
    "KnownTask",
    "Split",
    "TaskSet",
    "largest_extent",
    "structure",
    "task_set",
]
