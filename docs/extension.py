"""The parts of the documentation that are made from the sources, as directives.

primitive NAME   the specification of a step, from its docstring
errors           every code of a refusal, who gives it, and its reports
layers           the import contract of pyproject.toml
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from specification import Specification, specification
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tensorc.analysis.violation import CODES
from tensorc.schedule import primitives
from tensorc.schedule.step import REGISTRY

ROOT = Path(__file__).parent.parent
CASES = ROOT / "tests" / "errors" / "cases"
TIERS = {
    "REF": "Names",
    "ARG": "Arguments",
    "STR": "Structure",
    "TGT": "Limits",
    "DEP": "Dependences",
    "RGN": "Regions",
    "FLT": "Floating point",
    "UNS": "Undecided",
}

assert primitives.__all__, "importing the primitives registers them"


def primitive(name: str) -> str:
    """The section of a primitive."""
    found = specification(REGISTRY[name])
    conditions = "\n".join(f"* {_linked(c)}" for c in found.conditions)
    return f"""\
(primitive-{name})=

## {name}

{_plain(found.description)}

```python
{found.before}```

`s.{found.call}`

```python
{found.after}```

Legal when

{conditions}

{_plain(found.remarks)}
"""


def _linked(text: str) -> str:
    return re.sub(r"\b([A-Z]{3}\d{3})\b", lambda m: f"{{ref}}`{m[1]} <error-{m[1]}>`", text)


def _plain(text: str) -> str:
    """A docstring's prose as Markdown, which it already is but for its symbols."""
    return text.replace("*", r"\*").replace("<", r"\<")


def errors() -> str:
    """The index of the codes, by tier."""
    parts = []
    for tier, title in TIERS.items():
        parts.append(f"## {title}\n")
        parts += [_error(code) for code in CODES if code.startswith(tier)]
    return "\n".join(parts)


def _error(code: str) -> str:
    givers = [f"{{ref}}`{s.primitive} <primitive-{s.primitive}>`" for s in _givers(code)]
    reports = [c for c in sorted(CASES.glob("*.txt")) if _code_of(c) == code]
    shown = "\n".join(f"```text\n{c.read_text(encoding='utf-8')}```\n" for c in reports[:2])
    given = f"Given by {', '.join(givers)}." if givers else ""
    return f"(error-{code})=\n\n### {code}: {CODES[code]}\n\n{given}\n\n{shown}\n"


def _givers(code: str) -> Iterator[Specification]:
    for step in REGISTRY.values():
        found = specification(step)
        if any(code in condition for condition in found.conditions):
            yield found


def _code_of(report: Path) -> str:
    return report.read_text(encoding="utf-8").partition("[")[2].partition("]")[0]


def layers() -> str:
    """The layers, from the highest to the lowest, and the further contracts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    order = next(c for c in contracts if c["id"] == "layers")["layers"]
    rows = [
        " ".join(re.findall(r"\w+|[|:]", row)).replace("|", "·").replace(":", "·") for row in order
    ]
    listed = "\n".join(f"1. {row}" for row in rows)
    others = "\n".join(f"* {c['name']}." for c in contracts if c["id"] != "layers")
    return f"{listed}\n\nBesides:\n\n{others}\n"


class _Made(SphinxDirective):
    """A directive whose contents a function makes, as Markdown."""

    optional_arguments = 1
    make: Callable[..., str]

    def run(self) -> list[nodes.Node]:
        text = type(self).make(*self.arguments)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    for make in (primitive, errors, layers):
        kind = type(f"_{make.__name__}", (_Made,), {"make": staticmethod(make)})
        app.add_directive(make.__name__, kind)
    return {"parallel_read_safe": True}
