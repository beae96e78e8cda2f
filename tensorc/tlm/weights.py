"""Weights in a file, with what they were trained on.

A file is in the safetensors format: the tensors, and as text the sizes of the network, the hash of
the vocabulary, and the provenance: the hash of the data, steps, seed, revision of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorc
from tensorc.errors import ArgumentError
from tensorc.tlm.failures import WeightsError, library
from tensorc.tlm.network import Network, Shape
from tensorc.tlm.packed import metadata, replace_file
from tensorc.tlm.tensors import tensors as plain
from tensorc.tlm.vocabulary import vocabulary

if TYPE_CHECKING:
    from tensorc.tlm.model import Model

FORMAT = "tensorc tlm 1"
T = TypeVar("T")


@dataclass(frozen=True)
class Weights:
    """A trained network and where it is from."""

    model: Model
    provenance: Mapping[str, Any]
    digest: str


def save(
    model: Model,
    path: str | os.PathLike[str],
    provenance: Mapping[str, Any] | None = None,
    *,
    half: bool = False,
) -> None:
    """Write weights; an existing file is replaced as a whole.

    Args:
        model: whose weights they are.
        path: the file.
        provenance: where they are from.
        half: in half precision, see `tensorc.tlm.shipped`.

    Raises:
        ArgumentError: safetensors is not installed; a weight is beyond half precision.
        DataError: the file cannot be written.
    """
    tensors = dict(model.state_dict())
    if half:
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise ArgumentError("half", f"{name} has weights of 65520 or more, or none at all")
    replace_file(Path(path), packed(tensors, model.shape, provenance or {}))


def packed(
    tensors: Mapping[str, Any], shape: Shape, provenance: Mapping[str, Any], **more: str
) -> bytes:
    """Tensors as the bytes of a file."""
    kept = {
        "format": FORMAT,
        "shape": json.dumps(asdict(shape)),
        "vocabulary": vocabulary().hash,
        "provenance": json.dumps(dict(provenance), sort_keys=True),
        **more,
    }
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    data: bytes = library("safetensors.torch").save(contiguous, metadata=kept)
    return data


def load(path: str | os.PathLike[str]) -> Weights:
    """The weights of a file.

    Raises:
        ArgumentError: torch or safetensors is not installed.
        WeightsError: the file cannot be read, is truncated or damaged, or is of another vocabulary
            or format.
    """
    data, kept, tensors = unpacked(path)
    from tensorc.tlm.model import Model

    def made(shape: Shape) -> Model:
        model = Model(shape)
        model.load_state_dict(tensors)
        model.eval()
        return model

    model = _network(str(path), kept, made)
    provenance = _held(str(path), lambda: json.loads(kept.get("provenance", "{}")))
    return Weights(model, provenance, hashlib.sha256(data).hexdigest())


def load_native(path: str | os.PathLike[str]) -> Network:
    """The network of a file on kernels that tensorc compiles: neither torch nor safetensors is
    needed.

    Raises:
        WeightsError: as `load`.
    """
    from tensorc.tlm.native import Native

    _, kept, tensors = unpacked(path, plain)
    return _network(str(path), kept, lambda shape: Native(shape, tensors))


def checked(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file whose weights are those of a network; none is made, and neither torch nor
    safetensors is needed.

    Raises:
        WeightsError: as `load`.
    """
    from tensorc.tlm.native import check

    data, kept, tensors = unpacked(path, plain)
    _network(str(path), kept, lambda shape: check(shape, tensors))
    return hashlib.sha256(data).hexdigest()


def _network(path: str, kept: Mapping[str, str], made: Callable[[Shape], T]) -> T:
    return _held(path, lambda: made(Shape(**json.loads(kept["shape"]))))


def _held(path: str, made: Callable[[], T]) -> T:
    """What a file holds, or the error that it does not."""
    try:
        return made()
    except (KeyError, ValueError, TypeError, RuntimeError, ArgumentError) as error:
        raise WeightsError(path, f"it holds no network: {str(error)[:300]}") from None


def unpacked(
    path: str | os.PathLike[str], read: Callable[[bytes], dict[str, Any]] | None = None
) -> tuple[bytes, Mapping[str, str], dict[str, Any]]:
    """The bytes of a file of weights, what is kept as text, and its tensors. Raises as `load`.

    Args:
        path: the file.
        read: gives the tensors of its bytes and raises ValueError where there are none; those of
            torch by default.
    """
    read = read or _torch_tensors()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WeightsError(str(path), f"cannot be read: {error.strerror}") from None
    try:
        kept = metadata(data)
        tensors = read(data)
    except (ValueError, KeyError) as error:
        reason = f"it is truncated or damaged ({error}): copy or train it anew"
        raise WeightsError(str(path), reason) from None
    if kept.get("format") != FORMAT:
        reason = f"it is no {FORMAT!r} but {kept.get('format', 'another file')!r}"
        raise WeightsError(str(path), reason)
    if kept.get("vocabulary") != vocabulary().hash:
        known = f"{kept.get('vocabulary', '')[:12]}, this tensorc has {vocabulary().hash[:12]}"
        reason = f"it is of the vocabulary {known}: take weights of this version, or train anew"
        raise WeightsError(str(path), reason)
    return data, kept, tensors


def _torch_tensors() -> Callable[[bytes], dict[str, Any]]:
    safetensors, broken = library("safetensors.torch"), library("safetensors").SafetensorError

    def read(data: bytes) -> dict[str, Any]:
        try:
            found: dict[str, Any] = safetensors.load(data)
        except broken as error:
            raise ValueError(str(error)) from None
        return found

    return read


def revision() -> str:
    """The revision of the sources, with "+" when they were changed since; the version where there
    is no repository."""
    folder = Path(tensorc.__file__).parent
    try:
        asked = ("git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*")
        found = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return tensorc.__version__
    return found.stdout.strip()
