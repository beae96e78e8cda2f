"""Pages whose code is run: Markdown with fenced blocks, and the outputs that stand below them.

A block `python` is run, and so is `sh`; a block `text` directly below shows what that printed. A
block `python raises` ends with an error of tensorc, whose message is the rest of its output; other
blocks must not. All blocks of a page share one namespace and one folder. A block with a file name
behind its language is written to that file. Blocks of other languages (`console` for commands that
a test must not run) are prose.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tensorc.errors import TensorcError

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence) *$", re.M | re.S)
RUN = ("python", "sh")
RAISES = "raises"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, what else its first line says, its text and where that is."""

    language: str
    note: str
    body: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page):
        language, _, note = match["info"].strip().partition(" ")
        found.append(Block(language, note, match["body"], match.start("body"), match.end("body")))
    return found


class Runner:
    """What the blocks of a page share: a script that grows, its names and a folder."""

    def __init__(self, name: str, folder: Path):
        self.folder = folder
        self.script = folder / f"{name}.py"
        self.names: dict[str, object] = {"__name__": name, "__file__": str(self.script)}
        self.lines = 0

    def run(self, block: Block) -> str:
        """Run a block; what it prints."""
        if block.language == "sh":
            return self._shell(block.body)
        return self._python(block.body, raises=block.note == RAISES)

    def _python(self, code: str, *, raises: bool) -> str:
        # The script as it would be if the reader typed it: errors name its lines, and the source
        # of a function can be found.
        with self.script.open("a", encoding="utf-8") as script:
            script.write(code)
        padded = "\n" * self.lines + code
        self.lines += code.count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            try:
                exec(compile(padded, str(self.script), "exec"), self.names)
            except TensorcError as error:
                if not raises:
                    raise
                print(error)
            else:
                assert not raises, f"no error was raised by: {code}"
        return printed.getvalue()

    def _shell(self, commands: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        done = subprocess.run(
            ["sh", "-e", "-c", commands],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "TENSORC_CACHE_DIR": str(self.folder / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert not done.returncode or done.stdout, f"exit code {done.returncode} of: {commands}"
        return done.stdout


def executed(page: str, name: str, folder: Path) -> str:
    """The page with the outputs that its blocks have now."""
    return "".join(_executed(page, Runner(name, folder)))


def _executed(page: str, runner: Runner) -> Iterator[str]:
    known = blocks(page)
    done = 0
    for block, below in zip_longest(known, known[1:]):
        if block.note not in ("", RAISES):
            (runner.folder / block.note).write_text(block.body, encoding="utf-8")
        elif block.language in RUN:
            output = runner.run(block)
            shown = below is not None and below.language == "text" and not below.note
            if shown and _directly_below(page, block, below):
                yield page[done : below.start]
                yield _lines(output)
                done = below.end
            elif output:
                yield page[done : block.end] + "```\n\n```text\n" + _lines(output)
                done = block.end
    yield page[done:]


def _directly_below(page: str, block: Block, below: Block) -> bool:
    between = page[block.end : below.start]
    return re.fullmatch(r"`{3,} *\n\s*`{3,}text\n", between) is not None


def _lines(output: str) -> str:
    """The output as lines without spaces at their ends, nor empty ones at the end."""
    stripped = "\n".join(line.rstrip() for line in output.rstrip().splitlines())
    return stripped + "\n" if stripped else ""
