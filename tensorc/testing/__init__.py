"""Public Hypothesis strategies for programs and schedules, and the differential oracle.

In a Hypothesis test, `trial = data.draw(schedules(data.draw(programs())))` is a random program with
a random legal schedule, and `examine(trial.func, trial.steps)` is None when all is well with it.
`data.draw(sentences(Space(data.draw(tasks()))))` is a random sentence of a random task's space.
"""

from tensorc.testing.arrays import arrays, inputs
from tensorc.testing.checks import FailedCheckError, examine, shrink
from tensorc.testing.confirm import confirmed
from tensorc.testing.differential import difference, reference
from tensorc.testing.programs import programs
from tensorc.testing.schedules import Trial, Verdict, illegal_steps, schedules
from tensorc.testing.spaces import sentences, unequal_nodes
from tensorc.testing.tasks import tasks

__all__ = [
    "FailedCheckError",
    "Trial",
    "Verdict",
    "arrays",
    "confirmed",
    "difference",
    "examine",
    "illegal_steps",
    "inputs",
    "programs",
    "reference",
    "schedules",
    "sentences",
    "shrink",
    "tasks",
    "unequal_nodes",
]
