"""Lessons in one file, so that training begins at once and every run reads the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.tlm.failures import DataError, library
from tensorc.tlm.lessons import Lesson, Menu, Numbers
from tensorc.tlm.vocabulary import vocabulary

SUFFIX = ".lessons"
FORMAT = "tensorc lessons 1"


def save(lessons: Sequence[Lesson], path: str | os.PathLike[str], source: str = "") -> None:
    """Write lessons; an existing file is replaced as a whole.

    Args:
        lessons: in the order in which they will be read.
        path: the file.
        source: says where they are from; for people, and kept.

    Raises:
        ArgumentError: safetensors is not installed.
        DataError: the file cannot be written.
    """
    numpy = library("safetensors.numpy", "data")
    kept = {"format": FORMAT, "vocabulary": vocabulary().hash, "source": source}
    replace_file(Path(path), numpy.save(_arrays(lessons), metadata=kept))


def load(path: str | os.PathLike[str]) -> list[Lesson]:
    """The lessons of a file.

    Raises:
        ArgumentError: safetensors is not installed.
        DataError: it cannot be read, is damaged, or is of another vocabulary.
    """
    numpy = library("safetensors.numpy", "data")
    file = Path(path)
    try:
        data = file.read_bytes()
        kept = metadata(data)
        arrays = numpy.load(data)
    except (OSError, ValueError, KeyError, library("safetensors").SafetensorError) as error:
        raise DataError(str(file), f"it holds no whole lessons: {error}") from None
    if kept.get("format") != FORMAT:
        raise DataError(str(file), f"it is no {FORMAT!r} but {kept.get('format', 'unknown')!r}")
    if kept.get("vocabulary") != vocabulary().hash:
        reason = "it is of another vocabulary: pack the records anew, `tensorc train` does"
        raise DataError(str(file), reason)
    return _lessons(arrays)


def metadata(data: bytes) -> Mapping[str, str]:
    """What is kept beside the arrays of a safetensors file.

    Raises:
        ValueError: the bytes are those of no such file.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 + size:
        raise ValueError("the file ends within its header")
    header = json.loads(data[8 : 8 + size])
    return {str(name): str(text) for name, text in header.get("__metadata__", {}).items()}


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: who is killed meanwhile leaves the old one.

    Raises:
        DataError: it cannot be written; an existing one is as it was.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise DataError(str(path), f"cannot be written: {error.strerror}") from None


def digest(lessons: Iterable[Lesson]) -> str:
    """SHA-256 of lessons and their order: what weights were trained on."""
    found = hashlib.sha256()
    for name, array in sorted(_arrays(list(lessons)).items()):
        found.update(f"{name} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


def _arrays(lessons: Sequence[Lesson]) -> dict[str, NDArray[Any]]:
    menus = [menu for lesson in lessons for menu in lesson.menus]
    answers = [answer for lesson in lessons for answer in lesson.answers]
    pairs = [*answers, np.zeros((0, 2), np.int32)]
    rates = [*(lesson.throughput for lesson in lessons), np.zeros(0, np.float32)]
    return {
        "prompts": _joined([lesson.prompt for lesson in lessons]),
        "prompt_sizes": np.array([len(lesson.prompt) for lesson in lessons], np.int32),
        "questions": _joined([menu.question[None] for menu in menus]),
        "options": _joined([menu.options for menu in menus]),
        "option_sizes": np.array([len(menu.options) for menu in menus], np.int32),
        "menu_sizes": np.array([len(lesson.menus) for lesson in lessons], np.int32),
        "answers": np.concatenate(pairs),
        "answer_sizes": np.array([len(answer) for answer in answers], np.int32),
        "sentence_sizes": np.array([len(lesson.answers) for lesson in lessons], np.int32),
        "throughput": np.concatenate(rates),
    }


def _joined(parts: Sequence[Numbers]) -> Numbers:
    """Tables one below the other, as wide as the widest."""
    width = max((part.shape[1] for part in parts), default=0)
    found = np.zeros((sum(map(len, parts)), width), np.uint16)
    place = 0
    for part in parts:
        found[place : place + len(part), : part.shape[1]] = part
        place += len(part)
    return found


def _lessons(arrays: Mapping[str, NDArray[Any]]) -> list[Lesson]:
    options = _parts(arrays["options"], arrays["option_sizes"])
    menus = [Menu(asked, table) for asked, table in zip(arrays["questions"], options, strict=True)]
    answers = _parts(arrays["answers"], arrays["answer_sizes"])
    prompts = _parts(arrays["prompts"], arrays["prompt_sizes"])
    rates = _parts(arrays["throughput"], arrays["sentence_sizes"])
    found, menu, sentence = [], 0, 0
    sizes = zip(arrays["menu_sizes"].tolist(), arrays["sentence_sizes"].tolist(), strict=True)
    for prompt, rate, (choices, count) in zip(prompts, rates, sizes, strict=True):
        own = tuple(menus[menu : menu + choices]), tuple(answers[sentence : sentence + count])
        found.append(Lesson(prompt, *own, rate))
        menu, sentence = menu + choices, sentence + count
    return found


def _parts(array: NDArray[Any], sizes: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(array, np.cumsum(sizes)[:-1]) if len(sizes) else []
