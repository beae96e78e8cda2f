"""How a network is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensorc.errors import ArgumentError
from tensorc.tlm.batch import TOLD
from tensorc.tlm.network import Shape


@dataclass(frozen=True, slots=True)
class Settings:
    """How a network is trained.

    Attributes:
        steps: of the optimiser (AdamW; Loshchilov and Hutter 2019).
        lessons: of a step, and `answers` of each at most.
        rate: the learning rate after `warmup` steps; it falls to a tenth by half a cosine.
        decay: of weights, but not of biases and norms.
        clip: the norm that gradients have at most.
        slow: the weight of the value head's loss.
        told: the share of answers that begin with their quality.
        masked: whether a decision is one among the legal options; else among all of the language,
            and the rules are to be learned: to see what the mask is worth.
        seed: of all random numbers.
        every: so many steps lie between two states on disk, and two looks at the development set.

    Raises:
        ArgumentError: a number is out of its range.
    """

    steps: int = 4000
    lessons: int = 8
    answers: int = 16
    rate: float = 1e-3
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    slow: float = 0.25
    told: float = TOLD
    masked: bool = True
    seed: int = 0
    every: int = 200

    def __post_init__(self) -> None:
        for name in ("steps", "lessons", "answers", "every"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ArgumentError(name, f"got {getattr(self, name)!r:.80}; needed at least 1")
        for name in ("rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ArgumentError(name, f"got {getattr(self, name)!r:.80}; needed more than 0")
        if not 0.0 <= self.told <= 1.0:
            raise ArgumentError("told", f"got {self.told!r:.80}; needed from 0 to 1")
        if type(self.masked) is not bool:
            raise ArgumentError("masked", f"got {self.masked!r:.80}; needed true or false")
        for name in ("warmup", "decay", "slow", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ArgumentError(name, f"got {getattr(self, name)!r:.80}; needed from 0 on")

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, from 0 on."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(done, 1.0))))


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "shape": asdict(Shape(1)),
    "settings": asdict(Settings()),
}
"""What a shape and settings are where they say nothing else; a shape has to say its pieces."""


def check(shape: Shape, settings: Settings) -> None:
    """Raises ArgumentError where a network of this shape cannot learn what is asked."""
    if settings.told and not shape.told:
        reason = f"got {settings.told}, but the weights were never told a quality; needed 0"
        raise ArgumentError("told", reason)
    if settings.slow and not shape.valued:
        reason = f"got {settings.slow}, but the weights have no value head; needed 0"
        raise ArgumentError("slow", reason)
    if not settings.masked and not shape.blind:
        reason = "what is illegal has no contexts: without the mask the network reads none (blind)"
        raise ArgumentError("masked", reason)
