"""Records as lines of JSON.

A line is an object with "format": 1. What many records share is written once, as a definition,
before the first record that refers to it:

    {"format": 1, "define": "task", "id": "5f0c...", "value": "def matmul(...): ..."}
    {"format": 1, "define": "target", "id": "93ab...", "value": {"kind": "cpu", ...}}
    {"format": 1, "define": "context", "id": "07d2...", "value": {"versions": {...}, "host": {...}}}
    {"format": 1, "task": "5f0c...", "target": "93ab...", "context": "07d2...", "threads": 2,
     "outcome": "ok", "times": [0.00123, 0.00121], "steps": {...}, ...}

The id of a task is its structural hash, other ids are the beginning of the SHA-256 of their value.
Fields that have their default value are left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, MutableMapping
from typing import Any, TypeAlias

from tensorc.errors import TargetError
from tensorc.runtime.measure.record import Decision, Outcome, Pairs, Record
from tensorc.target import Target

FORMAT = 1
SIGNIFICANT = 4
"""Digits of a time: what a clock says beyond them is noise."""

Json: TypeAlias = Any
Definitions: TypeAlias = MutableMapping[tuple[str, str], Any]
"""(kind, id) -> the text of a task, a Target, or the versions and the host of a context."""


class OtherFormatError(ValueError):
    """A line of another version of the format."""


def encoded(record: Record, known: Definitions) -> bytes:
    """A record as its line, after the definitions that it needs and that are not `known` yet.

    These are added to `known`.
    """
    task = record.task
    target = _identified("target", record.target, json.loads(record.target.to_json()))
    context = _identified(
        "context",
        (record.versions, record.host),
        {"versions": dict(record.versions), "host": dict(record.host)},
    )
    lines = []
    for kind, name, value, data in (("task", task, record.func, record.func), target, context):
        if (kind, name) not in known:
            known[kind, name] = value
            lines.append({"format": FORMAT, "define": kind, "id": name, "value": data})
    fields = {
        "format": FORMAT,
        "task": task,
        "target": target[1],
        "context": context[1],
        "threads": record.threads,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "times": [_rounded(t) for t in record.times],
        "compile_seconds": _rounded(record.compile_seconds),
        "timestamp": round(record.timestamp, 3),
        "steps": json.loads(record.steps) if record.steps else None,
        "decisions": record.decisions,
        "sizes": dict(record.sizes),
        "tuner": record.tuner,
        "seed": record.seed,
        "nest": record.nest,
        "place": record.place or None,
    }
    lines.append({name: value for name, value in fields.items() if value not in _EMPTY})
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


_EMPTY: tuple[Json, ...] = ("", None, [], (), {})


def _identified(kind: str, value: Any, data: Json) -> tuple[str, str, Any, Json]:
    text = json.dumps(data, sort_keys=True)
    return kind, hashlib.sha256(text.encode()).hexdigest()[:16], value, data


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{SIGNIFICANT}g}")


def decoded(line: bytes, known: Definitions) -> Record | None:
    """The record of a line; None for a definition, which is added to `known`.

    Raises:
        OtherFormatError: the line is of another version of the format.
        ValueError: the line is none of ours, is damaged, or refers to what is not defined.
    """
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict) or type(data.get("format")) is not int:
        raise ValueError("no object with a format")
    if data["format"] != FORMAT:
        raise OtherFormatError(f"format {data['format']}, not {FORMAT}")
    if "define" in data:
        _define(data, known)
        return None
    return _record(data, known)


def _define(data: Json, known: Definitions) -> None:
    match data:
        case {"define": "task", "id": str(name), "value": str(text)}:
            value: Any = text
        case {"define": "target", "id": str(name), "value": dict(fields)}:
            try:
                value = Target.from_json(json.dumps(fields))
            except TargetError as error:
                raise ValueError(str(error)) from None
        case {"define": "context", "id": str(name), "value": {"versions": versions, "host": host}}:
            value = _pairs(versions), _pairs(host)
        case _:
            raise ValueError("no definition")
    # Equal values are one object, however often a file defines them.
    known.setdefault((data["define"], name), value)


def _record(data: Json, known: Definitions) -> Record:
    try:
        func = known["task", data["task"]]
        target = known["target", data["target"]]
        versions, host = known["context", data["context"]]
        seed = data.get("seed")
        steps = data.get("steps")
        record = Record(
            task=data["task"],
            func=func,
            target=target,
            threads=_whole(data["threads"], 1),
            steps="" if steps is None else json.dumps(steps, separators=(",", ":")),
            outcome=Outcome(data["outcome"]),
            reason=_text(data.get("reason", "")),
            times=tuple(_seconds(t) for t in data.get("times", ())),
            compile_seconds=_seconds(data["compile_seconds"]),
            timestamp=_seconds(data["timestamp"]),
            decisions=tuple(_decisions(data.get("decisions", ()))),
            sizes=tuple((_text(n), _whole(v, 0)) for n, v in data.get("sizes", {}).items()),
            tuner=_text(data.get("tuner", "")),
            seed=None if seed is None else _whole(seed, None),
            nest=_text(data.get("nest", "")),
            versions=versions,
            host=host,
            place=_whole(data.get("place", 0), 0),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no record: {error!r}") from None
    if record.ok and not (record.times and min(record.times) > 0.0):
        raise ValueError(f"ok, but the times are {record.times!r:.80}")
    return record


def _decisions(listed: Json) -> Iterator[Decision]:
    for entry in listed:
        match entry:
            case [str(kind), str(subject), int(value) | str(value)]:
                yield kind, subject, value
            case _:
                raise ValueError(f"no decision: {entry!r:.80}")


def _pairs(data: Json) -> Pairs:
    if not isinstance(data, dict):
        raise ValueError("no pairs")
    return tuple(sorted((name, _text(value)) for name, value in data.items()))


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"no text: {value!r:.80}")
    return value


def _whole(value: Json, least: int | None) -> int:
    if type(value) is not int or (least is not None and value < least):
        raise ValueError(f"no whole number from {least}: {value!r:.80}")
    return value


def _seconds(value: Json) -> float:
    if type(value) not in (int, float) or not 0.0 <= value < math.inf:
        raise ValueError(f"no time in seconds: {value!r:.80}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"no time in seconds: {value!r:.80}") from None
