"""ONNX models from files, bytes and memory, checked as a whole before any of it is imported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorc.errors import ArgumentError
from tensorc.graph.unsupported import Problems

OLDEST_IR, LATEST_IR = 1, 14
"""The versions of the file format that are known."""
LATEST_OPSETS: Mapping[str, int] = {"": 28, "ai.onnx.ml": 5}
"""The versions of ONNX's operator sets up to which the meaning of operators is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A model, the folder of its external data, and what to call it."""

    model: Any
    folder: Path | None
    name: str

    @property
    def opsets(self) -> Mapping[str, int]:
        """The version of each domain; ONNX's own is ""."""
        return opsets_of(self.model)


def opsets_of(owner: Any) -> dict[str, int]:
    """The opsets that a model or function imports. Before IR version 3 there was only the first."""
    found = {domain_of(entry.domain): entry.version for entry in owner.opset_import}
    return found or {"": 1}


def domain_of(name: str) -> str:
    """A domain by the one name that we use for it."""
    return "" if name == "ai.onnx" else name


def is_model(source: Any) -> bool:
    """Whether this is a network for us: an ONNX model, its bytes, or the path of a `.onnx` file."""
    if isinstance(source, str | os.PathLike):
        return str(os.fspath(source)).lower().endswith(".onnx")
    kind = type(source)
    return isinstance(source, bytes | bytearray | memoryview) or (
        kind.__name__ == "ModelProto" and kind.__module__.partition(".")[0] in ("onnx", "onnx_ml")
    )


def read(source: Any) -> Source:
    """A model from a path, bytes or a `ModelProto`.

    Raises:
        ArgumentError: the package `onnx` is missing; there is no such file; or it is no model.
        UnsupportedNetworkError: the model's format or operator sets are not known.
    """
    try:
        import onnx
    except ImportError as error:
        reason = 'ONNX models need the package onnx: pip install "tensorc[onnx]"'
        raise ArgumentError("network", reason) from error
    if isinstance(source, onnx.ModelProto):
        found = Source(source, None, source.graph.name or "network")
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        model = _parsed(_contents(path), str(path))
        found = Source(model, path.parent, model.graph.name or path.stem)
    else:
        model = _parsed(bytes(source), "what was given")
        found = Source(model, None, model.graph.name or "network")
    _check(found)
    return found


def _contents(path: Path) -> bytes:
    try:
        there = path.is_file()
    except (OSError, ValueError):
        # Its name is too long to be one, or has a zero byte.
        there = False
    if not there:
        raise ArgumentError("network", f"there is no file {str(path)!r:.300}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArgumentError("network", f"{path} cannot be read: {error}") from error


def _parsed(contents: bytes, where: str) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(contents)
    except DecodeError as error:
        reason = f"{where} is not a whole ONNX model: {error}"
        raise ArgumentError("network", reason) from error
    if not model.HasField("graph") or not model.ir_version:
        raise ArgumentError("network", f"{where} is not a whole ONNX model: it has no graph")
    nodes = [node for function in model.functions for node in function.node]
    names = (*_names(model.graph), *_names_of(nodes))
    if any(not isinstance(name, str) for name in names):
        reason = f"{where} is not a whole ONNX model: a name in it is no text"
        raise ArgumentError("network", reason)
    return model


def _names(graph: Any) -> Iterator[Any]:
    """All names within a graph. One that is not UTF-8 is bytes."""
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        yield value.name
    yield from _names_of(graph.node)


def _names_of(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            own = (attribute.g,) if attribute.HasField("g") else ()
            for graph in (*own, *attribute.graphs):
                yield from _names(graph)


def _check(source: Source) -> None:
    problems = Problems()
    version = source.model.ir_version
    if not OLDEST_IR <= version <= LATEST_IR:
        reason = f"versions {OLDEST_IR} to {LATEST_IR} are known"
        problems.add(f"IR version {version}", reason, "")
    for owner, where in [(source.model, ""), *((f, f.name) for f in source.model.functions)]:
        for domain, opset in opsets_of(owner).items():
            latest = LATEST_OPSETS.get(domain)
            if latest is not None and not 1 <= opset <= latest:
                what = f"opset {opset} of the domain {domain or 'ai.onnx'}"
                problems.add(what, f"opsets 1 to {latest} are known", where)
    problems.refuse(source.name)
