"""Training: batch after batch of lessons, with everything on disk that is needed to go on.

A step is a function of the settings, the lessons, its number and what the step before left: which
lessons, which answers of them and which units drop out come from the seed and the number. So a
training that was killed, and goes on from the last state on disk, ends in the same weights as one
that was not.

In the folder of a training are `state.safetensors`, all that is needed to go on; `log.jsonl`, a
line for each step; `weights.safetensors`, those of the least loss on the development lessons, or
the last ones where there are none; and `curve.png`. Files are replaced as a whole.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tensorc
from tensorc.errors import ArgumentError
from tensorc.tlm import weights as stored
from tensorc.tlm.batch import Batch, batch, drawn
from tensorc.tlm.failures import DataError
from tensorc.tlm.lessons import Lesson
from tensorc.tlm.loss import decision_loss, slow_loss, unmasked_loss
from tensorc.tlm.model import Model, Shape
from tensorc.tlm.packed import digest, replace_file
from tensorc.tlm.processes import ALONE, Processes
from tensorc.tlm.settings import DEFAULTS, check
from tensorc.tlm.settings import Settings as Settings

STATE, LOG, WEIGHTS = "state.safetensors", "log.jsonl", "weights.safetensors"
CHECKED = 64
"""So many development lessons tell how well a network does."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step that was done: its number, from 1 on, what was lost, and the tokens read.

    Losses are means: `decided` in nats a decision, `slow` of the value head. `checked` are those of
    the development lessons, after steps that looked at them.
    """

    step: int
    decided: float
    slow: float
    rate: float
    tokens: int
    seconds: float
    checked: tuple[float, float] | None = None


class Training:
    """A network that is trained, and the folder that it is kept in.

    Args:
        lessons: what is learned; those that the network cannot read are left out (`too_long`).
        folder: where it is kept; made if it is missing.
        settings: how it is trained.
        shape: the sizes of the network. Where it begins with random weights and nothing is told
            (`settings.told` is 0), or the value head learns nothing (`settings.slow` is 0), the
            network's own shape says so, and it is used without.
        development: lessons that are never learned and tell which weights are kept.
        start: weights to begin with, in place of random ones.
        device: "cpu", or what torch has.
        processes: those that train together; the first one writes the files.

    Raises:
        ArgumentError: there are no lessons, or fewer of a step than processes, or `start` has other
            sizes than `shape`, or the network cannot learn what the settings ask for.
        DataError: the folder cannot be used, or holds a training of other lessons or settings.
        WeightsError: the state in the folder is damaged, or of another vocabulary.
    """

    def __init__(
        self,
        lessons: Sequence[Lesson],
        folder: Path,
        settings: Settings,
        shape: Shape,
        development: Sequence[Lesson] = (),
        start: stored.Weights | None = None,
        device: str = "cpu",
        processes: Processes = ALONE,
    ) -> None:
        if settings.lessons < processes.count:
            reason = f"{settings.lessons} of a step are not enough for {processes.count} processes"
            raise ArgumentError("lessons", reason)
        if start is None:
            told, valued = settings.told > 0, settings.slow > 0
            shape = replace(shape, told=shape.told and told, valued=shape.valued and valued)
        check(shape, settings)
        self.processes = processes
        self.lessons = [lesson for lesson in lessons if readable(shape, lesson)]
        self.too_long = len(lessons) - len(self.lessons)
        if not self.lessons:
            raise ArgumentError("data", f"there are no lessons, but {self.too_long} too long ones")
        self.development = [one for one in development if readable(shape, one)][:CHECKED]
        self.folder, self.settings, self.device = folder, settings, device
        self.data = digest(self.lessons)
        self.parent = "" if start is None else start.digest
        self.step, self.best, self.tokens = 0, math.inf, 0
        self.model = self._fresh(shape, start).to(device)
        self.optimizer = _optimizer(self.model, settings)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(str(folder), f"cannot be used: {error.strerror}") from None
        if (folder / STATE).exists():
            self._restore()
        if processes.first:
            self._cut_log()
        # All processes have read the state when one of them can make a step.
        self.reading = processes.reading(self.model)

    def _fresh(self, shape: Shape, start: stored.Weights | None) -> Model:
        torch.manual_seed(self.settings.seed)
        model = Model(shape)
        if start is not None:
            if start.model.shape != shape:
                reason = f"it is {start.model.shape}, and the network {shape}"
                raise ArgumentError("start", reason)
            model.load_state_dict(start.model.state_dict())
        return model

    # A step ---------------------------------------------------------------------------------------

    def run(self, say: Callable[[Progress], None] = lambda progress: None) -> Path:
        """Train to the last step; where the weights are.

        Raises:
            DataError: a file cannot be written; the state before it is still there.
        """
        with open(self.folder / LOG, "a", encoding="utf-8") as log:
            while self.step < self.settings.steps:
                progress = self._advance()
                if not self.processes.first:
                    continue
                log.write(json.dumps(asdict(progress)) + "\n")
                if self._looks:
                    log.flush()
                    self._keep(progress)
                say(progress)
        return self.folder / WEIGHTS

    @property
    def _looks(self) -> bool:
        """Whether the state after this step is kept."""
        return self.step % self.settings.every == 0 or self.step == self.settings.steps

    def _advance(self) -> Progress:
        began = time.monotonic()
        torch.manual_seed(self.settings.seed * 1_000_003 + self.step + (self.processes.rank << 40))
        found = self.batch(self.step).on(self.device)
        rate = self.settings.rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        lost, count = self._lost(found)
        (self.processes.count * (lost[0] + self.settings.slow * lost[1])).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.step += 1
        self.tokens += count
        looks = self._looks and self.development and self.processes.first
        checked = self.checked() if looks else None
        decided, slow = self.processes.total(torch.stack(lost).detach()).tolist()
        seconds = time.monotonic() - began
        return Progress(self.step, decided, slow, rate, count, seconds, checked)

    def _lost(self, found: Batch) -> tuple[tuple[Tensor, Tensor], int]:
        """This process's parts of the two losses, whose sums over all are the means of the whole
        batch, and the tokens of all."""
        own = torch.stack(
            (
                found.decisions.weights.sum(),
                found.tokens.new_tensor(len(found.slow)),
                (found.tokens[..., 0] > 0).sum(),
            )
        ).double()
        total = self.processes.total(own)
        shares = (own / total.clamp(min=1e-9)).float()
        decided, slow = losses(self.model, found, self.reading, masked=self.settings.masked)
        return (shares[0] * decided, shares[1] * slow), int(total[2])

    def batch(self, step: int) -> Batch:
        """What this process reads in a step, always the same."""
        own = self.settings
        source = np.random.default_rng((own.seed, step))
        chosen = []
        for number in range(step * own.lessons, (step + 1) * own.lessons):
            turn, place = divmod(number, len(self.lessons))
            lesson = self.lessons[_order(own.seed, turn, len(self.lessons))[place]]
            chosen.append((lesson, drawn(lesson, own.answers, source, own.told)))
        return batch(self.model.shape, self.processes.part(chosen))

    def checked(self) -> tuple[float, float]:
        """The two losses on the development lessons, means over batches."""
        found = checked(self.model, self.development, self.settings, self.device)
        return found[0], found[1]

    # On disk --------------------------------------------------------------------------------------

    @property
    def provenance(self) -> dict[str, Any]:
        """What the weights come from, as plain data."""
        return {
            "data": self.data,
            "lessons": len(self.lessons),
            "sentences": sum(len(lesson.answers) for lesson in self.lessons),
            "parent": self.parent,
            "step": self.step,
            "tokens": self.tokens,
            "settings": asdict(self.settings),
            "revision": stored.revision(),
            "tensorc": tensorc.__version__,
            "torch": torch.__version__,
            "development": self.best if math.isfinite(self.best) else None,
        }

    def _keep(self, progress: Progress) -> None:
        """The state, and the weights when they are the best so far."""
        better = progress.checked is None or progress.checked[0] < self.best
        if progress.checked is not None:
            self.best = min(self.best, progress.checked[0])
        if better:
            stored.save(self.model, self.folder / WEIGHTS, self.provenance)
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for what, tensor in self.optimizer.state[parameter].items():
                tensors[f"{what}.{name}"] = tensor
        kept = json.dumps({**self._identity(), "step": self.step, "tokens": self.tokens})
        best = repr(self.best)
        data = stored.packed(tensors, self.model.shape, self.provenance, training=kept, best=best)
        replace_file(self.folder / STATE, data)

    def _identity(self) -> dict[str, Any]:
        """What a training that goes on must have in common with its beginning."""
        return {
            "data": self.data,
            "parent": self.parent,
            "shape": asdict(self.model.shape),
            "settings": asdict(self.settings),
        }

    def _restore(self) -> None:
        path = self.folder / STATE
        _, kept, tensors = stored.unpacked(path)
        found = json.loads(kept["training"])
        for name, wanted in self._identity().items():
            # What a training has not heard of had no other value yet.
            had = {**DEFAULTS[name], **found[name]} if name in DEFAULTS else found[name]
            if had != wanted:
                what = _difference(had, wanted)
                reason = f"the folder holds a training of other {name} ({what}): take another one"
                raise DataError(str(path), reason)
        self.step, self.tokens, self.best = found["step"], found["tokens"], float(kept["best"])
        self.model.load_state_dict(
            {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
        )
        for name, parameter in self.model.named_parameters():
            self.optimizer.state[parameter] = {
                what: _placed(tensors[f"{what}.{name}"], what, self.device)
                for what in ("step", "exp_avg", "exp_avg_sq")
            }

    def _cut_log(self) -> None:
        """Leave out what was logged after the state that is gone on from."""
        path = self.folder / LOG
        if path.exists():
            kept = [line for line in _lines(path) if line["step"] <= self.step]
            text = "".join(json.dumps(line) + "\n" for line in kept)
            replace_file(path, text.encode())


def losses(
    model: Model, found: Batch, reading: Any = None, *, masked: bool = True
) -> tuple[Tensor, Tensor]:
    """The losses of the decisions and of the value head; `reading` is what is called in place of
    the model, `masked` as in the settings."""
    hidden = (reading or model)(found.tokens, found.positions, found.masks).flatten(0, 1)
    slow = slow_loss(model, hidden[found.ends], found.slow, torch.ones_like(found.slow))
    decided = decision_loss if masked else unmasked_loss
    return decided(model, hidden, found.decisions), slow


def checked(
    model: Model, lessons: Sequence[Lesson], settings: Settings, device: str = "cpu"
) -> tuple[float, float]:
    """The two losses on lessons, means over batches that are always the same for them."""
    model.eval()
    source = np.random.default_rng(0)
    found = []
    with torch.inference_mode():
        for first in range(0, len(lessons), settings.lessons):
            own = lessons[first : first + settings.lessons]
            chosen = [(one, drawn(one, settings.answers, source, settings.told)) for one in own]
            made = batch(model.shape, chosen).on(device)
            lost = losses(model, made, masked=settings.masked)
            found.append([loss.item() for loss in lost])
    decided, slow = np.mean(found, 0).tolist()
    return decided, slow


def readable(shape: Shape, lesson: Lesson) -> bool:
    """Whether a network has positions for all tokens of a lesson."""
    longest = max((len(answer) + 1 for answer in lesson.answers), default=0)
    return len(lesson.prompt) <= shape.prompt and longest <= shape.answer


def history(folder: Path) -> list[Progress]:
    """The steps that the log of a training has; lines that are torn are left out.

    Raises:
        DataError: there is none.
    """
    path = folder / LOG
    if not path.exists():
        raise DataError(str(path), "there is no log of a training")
    found = []
    for line in _lines(path):
        checked = line["checked"]
        found.append(Progress(**{**line, "checked": None if checked is None else tuple(checked)}))
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(str(path), f"cannot be read: {error.strerror}") from None
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and "step" in found:
            yield found


def _optimizer(model: Model, settings: Settings) -> torch.optim.AdamW:
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.95))


@lru_cache(maxsize=4)
def _order(seed: int, turn: int, count: int) -> tuple[int, ...]:
    """The order of the lessons in one turn through all of them."""
    return tuple(np.random.default_rng((seed, turn, count)).permutation(count).tolist())


def _placed(tensor: Tensor, what: str, device: str) -> Tensor:
    return tensor if what == "step" else tensor.to(device)


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)
    return f"{str(old)[:12]} -> {str(new)[:12]}"
