"""What ONNX itself says about its operators: versions, attributes, and bodies of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from tensorc.graph.elements import RefusedError
from tensorc.graph.onnx_source import LATEST_OPSETS, opsets_of

# Attributes as ONNX has them (AttributeProto), by name.
Attributes: TypeAlias = Mapping[str, Any]


@cache
def schema_of(op: str, opset: int, domain: str) -> Any:
    """The definition of an operator in an operator set. Raises RefusedError: there is none."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        raise RefusedError(f"no such operator (opset {opset})") from None
    if schema.deprecated:
        raise RefusedError(f"opset {opset} has given it up")
    return schema


def attributes_for(schema: Any, given: Attributes) -> dict[str, Any]:
    """The attributes of a node with the defaults of its operator's version.

    Raises:
        RefusedError: an attribute is not one of the operator's, of another type, or missing.
    """
    found = dict(given)
    for name, attribute in given.items():
        expected = schema.attributes.get(name)
        if expected is None:
            raise RefusedError(f"an attribute `{name}`, which it has not")
        if int(attribute.type) != int(expected.type):
            kind = str(expected.type).rpartition(".")[2].lower()
            raise RefusedError(f"its attribute `{name}` is not of type {kind}")
    for name, expected in schema.attributes.items():
        if name in found:
            continue
        if expected.required:
            raise RefusedError(f"its attribute `{name}` is missing")
        if expected.default_value.name:
            found[name] = expected.default_value
    return found


def check_arity(schema: Any, inputs: Sequence[object], outputs: Sequence[object]) -> None:
    """Raises RefusedError for a node with too few or too many operands or results."""
    for what, given, least, most in (
        ("inputs", inputs, schema.min_input, schema.max_input),
        ("outputs", outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(given) <= most:
            legal = str(least) if least == most else f"{least} to {most}"
            raise RefusedError(f"{len(given)} {what}, expected {legal}")


def check_types(schema: Any, given: Sequence[str | None]) -> None:
    """Raises RefusedError for operands of types that the operator's version does not take.

    `given` are names of types, None for one that is left out or that has no name here.
    """
    named: dict[str, str] = {}
    for position, kind in enumerate(given):
        # The last parameter stands for all that follow.
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if kind is None:
            continue
        if kind not in formal.types:
            raise RefusedError(f"input {position} of type {kind}")
        if formal.is_homogeneous and named.setdefault(formal.type_str, kind) != kind:
            first = named[formal.type_str]
            raise RefusedError(f"inputs of types {first} and {kind}, which should be the same")


def resolved(attributes: Iterable[Any], outer: Attributes) -> dict[str, Any]:
    """A node's attributes by name; those that refer to a function's stand for what it was given."""
    found = {}
    for attribute in attributes:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif attribute.ref_attr_name in outer:
            own = type(attribute)()
            own.CopyFrom(outer[attribute.ref_attr_name])
            own.name = attribute.name
            found[own.name] = own
    return found


def function_body(
    schema: Any, node: Any, opset: int, attributes: Attributes, types: Sequence[Any]
) -> Any | None:
    """An operator's definition in terms of others (a FunctionProto) for this node, or None.

    `types` are those of the node's inputs (TypeProto, an empty one for an input left out).
    """
    import onnx

    def newest(versions: Sequence[int]) -> int | None:
        return max((v for v in versions if v <= opset), default=None)

    body = onnx.FunctionProto()
    plain = newest(schema.function_opset_versions)
    if plain is not None:
        body.ParseFromString(schema.get_function_with_opset_version(plain))
        return body
    version = newest(schema.context_dependent_function_opset_versions)
    if version is None:
        return None
    own = onnx.NodeProto()
    own.CopyFrom(node)
    del own.attribute[:]
    own.attribute.extend(attributes.values())
    contents = schema.get_context_dependent_function_with_opset_version(
        version, own.SerializeToString(), [one.SerializeToString() for one in types]
    )
    if not contents:
        return None
    body.ParseFromString(contents)
    return body


def body_opsets(body: Any, outer: Mapping[str, int]) -> Mapping[str, int]:
    """The operator sets that a function's body is written in.

    A definition of ONNX's own may leave out that of its standard operators, which is the newest.
    """
    found = {**outer, **(opsets_of(body) if body.opset_import else {})}
    found.setdefault("", LATEST_OPSETS[""])
    return found
