"""The gradients in all six inputs, with cotangents for both outputs, against the oracle, per rank."""

import pytest

from parity.gate import Recorder, check
from parity.matrix import Item
from parity.tolerances.expectations import Expectation

QUANTITIES = (
    "dq",
    "dk",
    "dv",
    "dg",
    "dbeta",
    "dh0",
)


@pytest.mark.gate
def test_backward(item: Item, record: Recorder, rerun: str, expectation: Expectation | None) -> None:
    check(item, record, rerun, expectation)
