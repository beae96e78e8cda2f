"""Running a schedule twice: by the interpreter, and as machine code between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorc.ir.interp import run
from tensorc.schedule.schedule import Schedule
from tensorc.testing import machine


def outputs(s: Schedule, rtol: float = 0.0, **arguments: Any) -> dict[str, Any]:
    """What the machine code of a schedule computes.

    The interpreter must give the same: bit for bit, or where functions are approximated, within a
    relative error of `rtol`.
    """
    start = s.source
    shapes = {p.name: arguments.get(p.name) for p in start.params}
    packed = dict(arguments)
    for name, func in s.state.packs:
        packed[name] = run(func, {"source": packed[name]}).outputs["packed"]
    interpreted = run(s.func, packed, order=3).outputs
    given = {n: interpreted[n] if v is None else v for n, v in shapes.items()}
    compiled = machine.outputs(machine.build(s.state), start, given)
    for name, array in interpreted.items():
        if rtol:
            np.testing.assert_allclose(compiled[name], array, rtol)
        else:
            np.testing.assert_array_equal(compiled[name], array)
    return {name: compiled[name] for name in interpreted}
