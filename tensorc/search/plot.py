"""The best time known after each trial, as a picture."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from tensorc.errors import ArgumentError

WIDTH, HEIGHT, EDGE = 760, 380, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


def plot(curves: Mapping[str, Sequence[float]], path: str | os.PathLike[str]) -> None:
    """Write curves to a `.png` (by matplotlib) or to an `.html` that needs nothing else.

    Args:
        curves: name -> seconds after each trial, infinite while nothing was right.
        path: the file; its suffix says which.

    Raises:
        ArgumentError: the suffix is another one, matplotlib is missing, or the file cannot be
            written.
    """
    file = Path(path)
    check(file)
    try:
        if file.suffix == ".png":
            _png(curves, file)
        else:
            file.write_text(html(curves), encoding="utf-8")
    except OSError as error:
        raise ArgumentError("plot", f"{file} cannot be written: {error.strerror}") from error


def check(file: Path) -> None:
    """Whether there can be a plot in the file. Raises ArgumentError, as `plot`."""
    if file.suffix not in (".png", ".html"):
        raise ArgumentError("plot", f"{file} is neither a .png nor an .html file")
    if not file.parent.is_dir():
        raise ArgumentError("plot", f"there is no folder {file.parent}")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ArgumentError("plot", f"{file} cannot be written")
    if file.suffix == ".png":
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            reason = "matplotlib is not installed: pip install 'tensorc[search]', or take .html"
            raise ArgumentError("plot", reason) from None


def _png(curves: Mapping[str, Sequence[float]], file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, seconds in curves.items():
        points = [(n, s * 1e6) for n, s in enumerate(seconds, 1) if s < math.inf]
        axes.step([n for n, _ in points], [s for _, s in points], where="post", label=name)
    axes.set_xlabel("trials")
    axes.set_ylabel("best time, microseconds")
    axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100, bbox_inches="tight")


def html(curves: Mapping[str, Sequence[float]]) -> str:
    """A page with one picture, and the figures behind it as JSON."""
    finite = [s for seconds in curves.values() for s in seconds if s < math.inf]
    most = max((len(seconds) for seconds in curves.values()), default=1)
    low, high = (min(finite), max(finite)) if finite else (1e-6, 1e-6)
    span = math.log(high / low) or 1.0

    def across(trial: int) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * trial / max(most, 1)

    def down(seconds: float) -> float:
        return EDGE + (HEIGHT - 2 * EDGE) * (1.0 - math.log(seconds / low) / span)

    parts = []
    for number, (name, seconds) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line, last = "", None
        for trial, value in enumerate(seconds, 1):
            if value < math.inf and value != last:
                start = f"M{across(trial):.1f}" if last is None else f"H{across(trial):.1f}V"
                line += (
                    f"{start},{down(value):.1f}" if last is None else f"{start}{down(value):.1f}"
                )
                last = value
        end = "" if last is None else f"H{across(len(seconds)):.1f}"
        parts.append(f'<path d="{line}{end}" fill="none" stroke="{colour}" stroke-width="2"/>')
        text = f'<text x="{WIDTH - 2 * EDGE}" y="{EDGE + 18 * number}" fill="{colour}">'
        parts.append(f"{text}{escape(name)}</text>")
    for level in dict.fromkeys((low, math.sqrt(low * high), high)):
        label = f'<text x="4" y="{down(level):.1f}">{level * 1e6:.4g} &#181;s</text>'
        rule = f'<path d="M{EDGE},{down(level):.1f}H{WIDTH - EDGE}" stroke="#ccc"/>'
        parts.insert(0, rule + label)
    parts.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 12}">trials: {most}</text>')
    data = {name: [s if s < math.inf else None for s in c] for name, c in curves.items()}
    shown = json.dumps(data).replace("<", "\\u003c")
    return (
        "<!doctype html>\n<meta charset=utf-8>\n<title>Best time so far</title>\n"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">\n'
        + "\n".join(parts)
        + f'\n</svg>\n<script type="application/json" id="seconds">{shown}</script>\n'
    )
