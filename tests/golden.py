"""Golden texts: plain .txt files that hold the expected text of a test, whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


class Golden:
    """Compares texts with files under `golden/<test module>/` beside the test module.

    The file of a test is `<test name>.txt`, or `<test name>.<part>.txt` for one of several texts.
    `pytest --update-golden` writes the files instead; read them before you commit them.
    """

    def __init__(self, module: Path, test: str, update: bool) -> None:
        self.folder = module.parent / "golden" / module.stem.removeprefix("test_")
        self.test = re.sub(r"[^\w.-]+", "-", test.removeprefix("test_")).strip("-")
        self.update = update

    def path(self, part: str = "") -> Path:
        return self.folder / f"{self.test}{'.' * bool(part)}{part}.txt"

    def check(self, text: object, part: str = "") -> None:
        """Fail unless `str(text)` is exactly the text of the file, a last newline aside."""
        path = self.path(part)
        actual = str(text).rstrip("\n") + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}: make it with --update-golden\n{actual}")
        assert actual == path.read_text(encoding="utf-8"), f"differs from {path}"
