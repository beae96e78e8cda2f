"""The golden fixture itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden


def test_update_then_check(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    Golden(module, "test_case[a b/c]", update=True).check("first\n second")
    stored = tmp_path / "golden" / "module" / "case-a-b-c.txt"
    assert stored.read_text() == "first\n second\n"
    Golden(module, "test_case[a b/c]", update=False).check("first\n second\n")


def test_parts_have_files_of_their_own(tmp_path: Path) -> None:
    golden = Golden(tmp_path / "test_module.py", "test_case", update=True)
    golden.check("one", "before")
    golden.check("two", "after")
    names = sorted(path.name for path in (tmp_path / "golden" / "module").iterdir())
    assert names == ["case.after.txt", "case.before.txt"]


def test_difference_fails(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    Golden(module, "test_case", update=True).check("expected")
    with pytest.raises(AssertionError, match="differs from"):
        Golden(module, "test_case", update=False).check("actual")


def test_missing_file_fails_and_is_not_made(tmp_path: Path) -> None:
    golden = Golden(tmp_path / "test_module.py", "test_case", update=False)
    with pytest.raises(pytest.fail.Exception, match="--update-golden"):
        golden.check("text")
    assert not golden.path().exists()
