"""A range of fractions had one element more than torch gives where the quotient rounds down."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.graph.torch_nodes import check

pytestmark = pytest.mark.torch
TENTHS = st.integers(-20, 20).map(lambda n: n / 10)


@given(TENTHS, TENTHS, TENTHS.filter(bool))
@example(0.1, 1.0, 0.3)
def test_a_range_is_as_long_as_in_torch(start: float, end: float, step: float) -> None:
    if (end - start) * step < 0:
        return  # torch refuses it
    check(torch.ops.aten.arange.start_step, start, end, step)
