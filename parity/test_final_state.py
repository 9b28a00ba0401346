"""Each rank's copy of the final state against the oracle."""

import pytest

from parity.gate import Recorder, check
from parity.matrix import Item
from parity.tolerances.expectations import Expectation

QUANTITIES = ("final_state",)


@pytest.mark.gate
def test_final_state(item: Item, record: Recorder, rerun: str, expectation: Expectation | None) -> None:
    check(item, record, rerun, expectation)
