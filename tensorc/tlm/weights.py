"""Weights in a file, with what they were trained on.

A file is in the safetensors format: the tensors, and as text the sizes of the network, the hash of
the vocabulary, and the provenance: the hash of the data, steps, seed, revision of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tensorc
from tensorc.errors import ArgumentError
from tensorc.tlm.failures import WeightsError, library
from tensorc.tlm.model import Model, Shape
from tensorc.tlm.packed import metadata, replace_file
from tensorc.tlm.vocabulary import vocabulary

FORMAT = "tensorc tlm 1"


@dataclass(frozen=True)
class Weights:
    """A trained network and where it is from."""

    model: Model
    provenance: Mapping[str, Any]
    digest: str


def save(
    model: Model, path: str | os.PathLike[str], provenance: Mapping[str, Any] | None = None
) -> None:
    """Write weights; an existing file is replaced as a whole.

    Raises:
        ArgumentError: safetensors is not installed.
        DataError: the file cannot be written.
    """
    replace_file(Path(path), packed(dict(model.state_dict()), model.shape, provenance or {}))


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
    try:
        shape = Shape(**json.loads(kept["shape"]))
        model = Model(shape)
        model.load_state_dict(tensors)
        provenance = json.loads(kept.get("provenance", "{}"))
    except (KeyError, ValueError, TypeError, RuntimeError, ArgumentError) as error:
        raise WeightsError(str(path), f"it holds no network: {str(error)[:300]}") from None
    return Weights(model.eval(), provenance, hashlib.sha256(data).hexdigest())


def unpacked(path: str | os.PathLike[str]) -> tuple[bytes, Mapping[str, str], dict[str, Any]]:
    """The bytes of a file of weights, what is kept as text, and its tensors. Raises as `load`."""
    safetensors = library("safetensors.torch")
    broken = library("safetensors").SafetensorError
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WeightsError(str(path), f"cannot be read: {error.strerror}") from None
    try:
        kept = metadata(data)
        tensors = safetensors.load(data)
    except (ValueError, KeyError, broken) as error:
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
