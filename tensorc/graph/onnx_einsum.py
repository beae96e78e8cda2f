"""ONNX's Einsum: operands are turned, summed and multiplied two at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call, expanded, maps, permuted, reshaped


@dataclass(frozen=True, slots=True)
class Term:
    """A value and the label of each of its dimensions, all different."""

    value: Value
    labels: tuple[str, ...]

    def extent(self, label: str) -> int:
        return self.value.shape[self.labels.index(label)]


@maps("Einsum", 12, 28)
def _einsum(call: Call) -> Value:
    values = [call[n] for n in range(len(call.inputs))]
    call.same_dtype(*values)
    words, result = _parsed(call.attributes["equation"], [len(v.shape) for v in values])
    emit = call.emit
    terms = [_term(emit, value, word) for value, word in zip(values, words, strict=True)]
    extents: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.value.shape, strict=True):
            if extents.setdefault(label, extent) == 1:
                extents[label] = extent
            elif extent not in (1, extents[label]):
                raise RefusedError(f"extents {extents[label]} and {extent} of one index")
    terms = [_without_units(emit, term, extents) for term in terms]
    left = terms[0]
    for position, right in enumerate(terms[1:], start=1):
        rest = {label for term in terms[position + 1 :] for label in term.labels}
        left = _contracted(emit, left, right, rest | set(result))
    left = _summed(emit, left, set(result))
    # A label that only had extents of 1 beside larger ones is there; others are in some term.
    order = tuple(left.labels.index(label) for label in result)
    return permuted(emit, left.value, order)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of the operands and of the result; an ellipsis has numbers, the last 0."""
    text = equation.replace(" ", "")
    given, arrow, wanted = text.partition("->")
    words = given.split(",")
    if len(words) != len(ranks):
        raise RefusedError(f"{equation!r} for {len(ranks)} operands")
    labelled = [_labels(word, rank) for word, rank in zip(words, ranks, strict=True)]
    widest = max(sum(label.isdigit() for label in word) for word in labelled)
    broad = tuple(str(n) for n in reversed(range(widest)))
    if arrow:
        result = _labels(wanted, len(wanted.replace("...", "")) + widest * ("..." in wanted))
    else:
        every = [label for word in labelled for label in word]
        once = sorted(one for one in set(every) if one.isalpha() and every.count(one) == 1)
        result = (*broad, *once)
    known = {label for word in labelled for label in word}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise RefusedError(f"{equation!r}")
    return labelled, result


def _labels(word: str, rank: int) -> tuple[str, ...]:
    before, dots, after = word.partition("...")
    if not (before + after).isalpha() and before + after:
        raise RefusedError(f"the term {word!r}")
    count = rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise RefusedError(f"the term {word!r} for {rank} dimensions")
    return (*before, *(str(n) for n in reversed(range(count))), *after)


def _term(emit: Emit, value: Value, labels: tuple[str, ...]) -> Term:
    """An operand with the diagonal taken of dimensions of one label."""
    labels_left = list(labels)
    for label in dict.fromkeys(labels):
        while labels_left.count(label) > 1:
            first = labels_left.index(label)
            second = labels_left.index(label, first + 1)
            if value.shape[first] != value.shape[second]:
                raise RefusedError(f"the diagonal of extents {list(value.shape)}")
            value = emit("diagonal", self=value, dim1=first, dim2=second)
            labels_left = [one for n, one in enumerate(labels_left) if n not in (first, second)]
            labels_left.append(label)
    return Term(value, tuple(labels_left))


def _without_units(emit: Emit, term: Term, extents: dict[str, int]) -> Term:
    """Without the dimensions of one element that broadcast."""
    kept = [n for n, label in enumerate(term.labels) if term.value.shape[n] == extents[label]]
    shape = tuple(term.value.shape[n] for n in kept)
    return Term(reshaped(emit, term.value, shape), tuple(term.labels[n] for n in kept))


def _summed(emit: Emit, term: Term, needed: set[str]) -> Term:
    """Summed over the labels that nothing else needs."""
    gone = tuple(n for n, label in enumerate(term.labels) if label not in needed)
    if not gone:
        return term
    total = emit("sum", self=term.value, dim=gone, dtype=term.value.dtype)
    return Term(total, tuple(label for label in term.labels if label in needed))


def _contracted(emit: Emit, a: Term, b: Term, needed: set[str]) -> Term:
    """The product, summed over the labels that both have and nothing else needs."""
    a = _summed(emit, a, needed | set(b.labels))
    b = _summed(emit, b, needed | set(a.labels))
    both = [label for label in a.labels if label in b.labels]
    batch = [label for label in both if label in needed]
    inner = [label for label in both if label not in needed]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]
    left = _grouped(emit, a, batch, rows, inner)
    right = _grouped(emit, b, batch, inner, columns)
    shape = (
        *(a.extent(label) for label in (*batch, *rows)), *(b.extent(label) for label in columns)
    )  # fmt: skip
    labels = (*batch, *rows, *columns)
    if not inner:
        # Nothing is summed: the product of elements.
        whole = (*left.shape[:2], right.shape[2])
        sides = (expanded(emit, left, whole), expanded(emit, right, whole))
        product = emit("mul", self=sides[0], other=sides[1])
    else:
        product = emit("bmm", self=left, mat2=right)
    return Term(reshaped(emit, product, shape), labels)


def _grouped(emit: Emit, term: Term, *groups: Sequence[str]) -> Value:
    """The value with the dimensions of each group as one."""
    labels = [label for group in groups for label in group]
    turned = permuted(emit, term.value, tuple(term.labels.index(label) for label in labels))
    sizes = tuple(math.prod(term.extent(label) for label in group) for group in groups)
    return reshaped(emit, turned, sizes)
