"""Running a schedule twice: by the interpreter, and as machine code between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorc.ir.interp import run
from tensorc.schedule.schedule import Schedule
from tensorc.testing import machine


def outputs(s: Schedule, **arguments: Any) -> dict[str, Any]:
    """What a schedule computes; the two ways of running it must agree, bit for bit."""
    start = s.source
    shapes = {p.name: arguments.get(p.name) for p in start.params}
    packed = dict(arguments)
    for name, func in s.state.packs:
        packed[name] = run(func, {"source": packed[name]}).outputs["packed"]
    interpreted = run(s.func, packed, order=3).outputs
    given = {n: interpreted[n] if v is None else v for n, v in shapes.items()}
    compiled = machine.outputs(machine.build(s.state), start, given)
    for name, array in interpreted.items():
        np.testing.assert_array_equal(compiled[name], array)
    return dict(interpreted)
