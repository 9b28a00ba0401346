"""The outputs of every implementation against the oracle, per rank."""

from collections.abc import Callable

import pytest

from parity.gate import check
from parity.matrix import Item
from parity.report.accuracy import Record
from parity.tolerances.expectations import Expectation

QUANTITIES = ("o",)


@pytest.mark.gate
def test_forward(item: Item, record: Callable[[Record], None], rerun: str, expectation: Expectation | None) -> None:
    check(item, record, rerun, expectation)
