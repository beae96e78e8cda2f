"""The picture of a search: what is in it, and what it cannot be."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.search.plot import HEIGHT, WIDTH, check, html, plot

_curves = st.dictionaries(
    st.text(max_size=20),
    st.lists(st.floats(1e-9, 1e3) | st.just(math.inf), max_size=30).map(tuple),
    max_size=12,
)


@given(_curves)
def test_a_page_holds_the_figures_and_a_picture_of_them(
    curves: dict[str, tuple[float, ...]],
) -> None:
    page = html(curves)
    data = json.loads(page.partition('id="seconds">')[2].partition("</script>")[0])
    assert data == {
        name: [s if s < math.inf else None for s in seconds] for name, seconds in curves.items()
    }
    drawn = page[page.index("<svg") : page.index("</svg>") + 6]
    shown = "".join(c for c in drawn if c.isprintable() or c == "\n")
    picture = ET.fromstring(shown)
    lines = [e.get("d", "") for e in picture.iter("path") if e.get("fill") == "none"]
    assert len(lines) == len(curves)
    for line in lines:
        for x, y in re.findall(r"([\d.]+),([\d.]+)", line):
            assert 0.0 <= float(x) <= WIDTH
            assert 0.0 <= float(y) <= HEIGHT


def test_pictures_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"a": (math.inf, 1e-3, 1e-4)}
    plot(curves, tmp_path / "a.html")
    plot(curves, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    plot({"nothing": (math.inf,)}, tmp_path / "nothing.png")
    plot({}, tmp_path / "none.html")
    with pytest.raises(ArgumentError, match="neither a"):
        plot(curves, tmp_path / "a.svg")
    with pytest.raises(ArgumentError, match="there is no folder"):
        plot(curves, tmp_path / "none" / "a.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ArgumentError, match="cannot be written"):
        plot(curves, tmp_path / "folder.html")
    # A search asks before it begins.
    with pytest.raises(ArgumentError, match=r"folder\.html cannot be written"):
        check(tmp_path / "folder.html")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ArgumentError, match=r"pip install 'tensorc\[search\]'"):
        plot(curves, tmp_path / "b.png")
