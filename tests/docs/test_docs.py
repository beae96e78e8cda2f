"""The code of every page runs and prints what the page says; `--update-golden` writes the pages."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensorc as tc
from tensorc.schedule import primitives
from tensorc.schedule.step import REGISTRY
from tests.docs.pages import blocks, executed

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts
)


def name_of(page: Path) -> str:
    """The name of the script that a reader of the page would have typed."""
    return page.stem.lower().replace("-", "_")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    if "```sh\ncc " in text and shutil.which("cc") is None:
        pytest.skip("no C compiler cc on this machine")
    with tc.config.scope(cache_dir=tmp_path / "cache"):
        now = executed(text, name_of(page), tmp_path)
    if request.config.getoption("--update-golden"):
        page.write_text(now, encoding="utf-8", newline="\n")
    else:
        assert now == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def documented(page: str) -> list[str]:
    """The full names that the directives of a page describe."""
    found = re.findall(r"^\.\. (?:auto\w+|py:data):: ((?:[\w.]*\w\s+)+)", page, re.M)
    return [name for group in found for name in re.findall(r"tensorc\.[\w.]+", group)]


def test_the_reference_has_every_public_name_once() -> None:
    names = documented((ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))
    assert len(names) == len(set(names))
    public = {name.removeprefix("tensorc.") for name in names if name.count(".") == 1}
    assert public == set(tc._MODULE_OF)
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__doc__, name


def test_every_layer_and_every_command_is_told_of() -> None:
    """What is there and on no page, a reader takes for what comes later."""
    commands = importlib.import_module("tensorc.cli.train").app.registered_commands
    importlib.import_module("tensorc.cli.searches")
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in commands:
        name = command.name or command.callback.__name__
        assert f"`{name}" in page, name
    layers = (ROOT / "README.md").read_text(encoding="utf-8").split("## ")
    (shown,) = (text for text in layers if text.startswith("Layers"))
    for package in (ROOT / "tensorc").glob("*/__init__.py"):
        assert re.search(rf"\b{package.parent.name}\b", shown), package


def test_pages_that_docs_fills_say_so() -> None:
    """A reader of the repository sees directives in place of what they make."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if re.search(r"^```\{(primitive|errors|layers|eval-rst)\}", text, re.M):
            assert "make docs" in text, page


SAMPLE = """\
```python
import tensorc as tc
x = 1
print(x + 1)
```
```text
2
```

Prose.

```python raises
tc.parse("def f(")
```

```text
stale
```

```sh
echo seen; cat note.txt
```

```text a.txt
not an output
```
"""


def test_outputs_are_compared_and_renewed(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a note\n")
    now = executed(SAMPLE, "sample", tmp_path)
    parts = [block.body for block in blocks(now) if block.language == "text"]
    assert parts[0] == "2\n"
    assert parts[1].startswith("<text>:1:6: ")
    assert "stale" not in now
    assert parts[2] == "seen\na note\n"
    assert (tmp_path / "a.txt").read_text() == "not an output\n"
    assert executed(now, "again", tmp_path) == now


def test_a_failing_command_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 3"):
        executed("```sh\nexit 3\n```\n", "sample", tmp_path)


def test_an_error_that_is_not_announced_fails(tmp_path: Path) -> None:
    text = '```python\nimport tensorc as tc\ntc.parse("")\n```\n'
    with pytest.raises(tc.ParseError):
        executed(text, "sample", tmp_path)
    with pytest.raises(AssertionError, match="no error was raised"):
        executed("```python raises\nx = 1\n```\n", "sample", tmp_path)


def test_other_errors_fail(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        executed("```python\n1 / 0\n```\n", "sample", tmp_path)


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(
        [*command, "-b", "html", "-d", tmp_path / "trees", ROOT / "docs", tmp_path / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "refusals.html").exists()


def test_every_primitive_is_on_one_page() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "primitives").glob("*.md"))
    shown = re.findall(r"^```\{primitive\} (\w+)$", pages, re.M)
    assert sorted(shown) == sorted(REGISTRY)
    assert len(shown) == len(primitives.__all__)
