"""How a training went, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensorc.tlm.train import Progress, history

PICTURE = "curve.png"
SMOOTHED = 50
"""A point of a curve is the mean of so many steps at most."""


def curve(folder: Path) -> Path | None:
    """Draw the losses of a training into its folder; None where matplotlib is not installed.

    Raises:
        DataError: the folder has no log.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    steps = history(folder)
    figure = Figure(figsize=(8, 6))
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, name, place in ((upper, "decided", 0), (lower, "slow", 1)):
        xs, ys = points(steps, name)
        axes.plot(xs, ys, label="training")
        looks = [p for p in steps if p.checked is not None]
        if looks:
            axes.plot(
                [p.step for p in looks],
                [p.checked[place] for p in looks if p.checked is not None],
                "o-",
                label="development",
            )
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    upper.set_ylabel("nats a decision")
    lower.set_ylabel("error of the value head")
    lower.set_xlabel("step")
    path = folder / PICTURE
    figure.savefig(path, dpi=100, bbox_inches="tight")
    return path


def points(steps: Sequence[Progress], name: str) -> tuple[list[float], list[float]]:
    """A loss as a curve: means over neighbouring steps, at the middle of these."""
    size = max(min(SMOOTHED, len(steps) // 20), 1)
    parts = [steps[first : first + size] for first in range(0, len(steps), size)]
    middle = [sum(p.step for p in part) / len(part) for part in parts]
    return middle, [sum(getattr(p, name) for p in part) / len(part) for part in parts]
