"""What a network is compared with: torch eager, `torch.compile` and ONNX Runtime."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from tensorc.cli.subject import Subject
from tensorc.errors import ArgumentError
from tensorc.graph.torch_examples import FAILURES
from tensorc.graph.torch_tensors import first_line

Call: TypeAlias = Callable[[], Any]


def peer(name: str, subject: Subject, threads: int, folder: Path) -> Call:
    """A call of the subject by a peer, ready to run on so many threads.

    `folder` is where it may put files; its code may have to be made in the first call. What the
    peer raises itself is not caught: see `failures`.

    Raises:
        ArgumentError: a package is missing, or the peer does not take this network.
    """
    return PEERS[name](subject, threads, folder)


def require(names: Iterable[str], subject: Subject) -> None:
    """What can be told of peers before anything is compiled.

    Raises:
        ArgumentError: a package is missing, or a peer does not take networks of this kind.
    """
    for name in names:
        if name == "onnxruntime":
            _require_onnxruntime(subject)
        else:
            _module(subject, name)


def reason_of(error: Exception) -> str:
    """One line of what `failures` are: what it came to at first, since torch's exporter tells of
    its stages above that."""
    if isinstance(error, ArgumentError):
        return error.reason
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"


def failures() -> tuple[type[Exception], ...]:
    """What peers raise over a network that they do not take. The errors of ONNX Runtime, where it
    is in use, derive from no others."""
    module = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
    names = vars(module).values() if module is not None else ()
    own = (one for one in names if isinstance(one, type) and issubclass(one, Exception))
    return (*FAILURES, *own)


def _torch(subject: Subject, threads: int, folder: Path) -> Call:
    del folder
    import torch

    torch.set_num_threads(threads)
    module = _module(subject, "torch")
    return lambda: module(*subject.arguments, **subject.keywords)


def _inductor(subject: Subject, threads: int, folder: Path) -> Call:
    del folder
    import torch

    torch.set_num_threads(threads)
    module = torch.compile(_module(subject, "torch.compile"))
    return lambda: module(*subject.arguments, **subject.keywords)


def _module(subject: Subject, name: str) -> Callable[..., Any]:
    if subject.torch is None:
        reason = f"{name} cannot run {subject.name}, which is no network of torch's"
        raise ArgumentError("compare", f"{reason}; legal here: onnxruntime")
    return subject.torch


def _require_onnxruntime(subject: Subject) -> Any:
    try:
        import onnxruntime

        if subject.torch is not None:
            import onnxscript  # noqa: F401  # torch's exporter needs it
    except ImportError as missing:
        reason = f"{missing.name} is not installed: pip install 'tensorc[peers]'"
        raise ArgumentError("compare", reason) from missing
    return onnxruntime


def _onnxruntime(subject: Subject, threads: int, folder: Path) -> Call:
    onnxruntime = _require_onnxruntime(subject)
    path = subject.source if isinstance(subject.source, str) else _exported(subject, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    arrays = _leaves(subject)
    if len(names) != len(arrays):
        reason = f"the exported model takes {', '.join(names)}: not as many as {subject.name}"
        raise ArgumentError("compare", reason)
    given = dict(zip(names, arrays, strict=True))
    return lambda: session.run(None, given)


def _leaves(subject: Subject) -> list[Any]:
    """The arrays of a call, in order."""
    if subject.torch is None:
        return list(subject.arguments)
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((subject.arguments, subject.keywords))
    return [leaf.numpy() for leaf in leaves if hasattr(leaf, "numpy")]


def _exported(subject: Subject, folder: Path) -> Path:
    """The subject as an ONNX file; its weights lie beside it, so that they may be large."""
    import torch

    path = folder / "network.onnx"
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            subject.source,
            subject.arguments,
            path,
            kwargs=dict(subject.keywords),
            dynamo=True,
            external_data=True,
            verbose=False,
        )
    return path


@contextlib.contextmanager
def _quiet() -> Any:
    """Without what the exporter tells of its progress."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)


PEERS: Mapping[str, Callable[[Subject, int, Path], Call]] = MappingProxyType(
    {"torch": _torch, "torch.compile": _inductor, "onnxruntime": _onnxruntime}
)
