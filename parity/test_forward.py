"""The outputs of every implementation against the oracle, per rank."""

import pytest

from parity.gate import Recorder, check
from parity.matrix import Item
from parity.tolerances.expectations import Expectation

QUANTITIES = ("o",)


@pytest.mark.gate
def test_forward(item: Item, record: Recorder, rerun: str, expectation: Expectation | None) -> None:
    check(item, record, rerun, expectation)
