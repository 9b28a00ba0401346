"""Each rank's copy of the final state against the oracle."""

from collections.abc import Callable

import pytest

from parity.gate import check
from parity.matrix import Item
from parity.report.accuracy import Record
from parity.tolerances.expectations import Expectation

QUANTITIES = ("final_state",)


@pytest.mark.gate
def test_final_state(item: Item, record: Callable[[Record], None], rerun: str, expectation: Expectation | None) -> None:
    check(item, record, rerun, expectation)
