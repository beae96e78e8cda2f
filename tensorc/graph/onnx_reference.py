"""What others compute for an ONNX model: its own evaluator, ONNX Runtime, or any function."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array
from tensorc.graph.onnx_examples import as_array
from tensorc.graph.onnx_fold import FAILURES, first_line
from tensorc.graph.onnx_source import Source, is_model, read
from tensorc.ir.words import kind_of


def is_reference_model(reference: Any) -> bool:
    """Whether this is a model, which ONNX's evaluator can run."""
    return reference is not None and is_model(reference)


def arrays_of(source: Source, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All values of a model that are arrays, by name.

    Raises:
        ArgumentError: ONNX's evaluator cannot run it.
    """
    found = _evaluated(source, feeds, everything=True)
    return {name: one for name, one in found.items() if isinstance(one, np.ndarray)}


def results_of(reference: Any, feeds: Mapping[str, Array]) -> list[Array]:
    """The results of a session of ONNX Runtime, a model, or a function of the arrays.

    Raises:
        ArgumentError: it is none of these, or fails, or gives what are no arrays.
    """
    if is_reference_model(reference):
        found = _evaluated(read(reference), feeds, everything=False)
    elif hasattr(reference, "run") and hasattr(reference, "get_inputs"):
        found = reference.run(None, dict(feeds))
    elif callable(reference):
        found = reference(*feeds.values())
    else:
        reason = "expected a session of ONNX Runtime, a model, or a function"
        raise ArgumentError("module", f"{reason}, got {kind_of(reference)}")
    several = found if isinstance(found, tuple | list) else [found]
    return [as_array(one, f"result {n} of the reference") for n, one in enumerate(several)]


def _evaluated(source: Source, feeds: Mapping[str, Array], *, everything: bool) -> Any:
    from onnx.reference import ReferenceEvaluator

    model = _with_data(source)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(model).run(None, dict(feeds), intermediate=everything)
    except FAILURES as error:
        reason = f"ONNX's evaluator cannot run it: {first_line(error)}"
        raise ArgumentError("module", reason) from error


def _with_data(source: Source) -> Any:
    """The model with all its data inside it."""
    import onnx

    helper = onnx.external_data_helper
    if source.folder is None or not any(
        map(helper.uses_external_data, source.model.graph.initializer)
    ):
        return source.model
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    helper.load_external_data_for_model(model, str(source.folder))
    return model
