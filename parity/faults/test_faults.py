"""The suite is worth what it catches: every fault, in the quantity that it names, by a wide margin."""

from collections.abc import Callable

import pytest

from parity.faults.kills import Kill
from parity.faults.planting import Planting, check

pytestmark = pytest.mark.faults


def test_a_fault_is_caught(planting: Planting, record_kill: Callable[[Kill], None]) -> None:
    kill = check(planting)
    record_kill(kill)
    if kill.not_applicable:
        pytest.skip(f"not applicable: {kill.not_applicable}")
    assert kill.killed, "\n".join([f"{planting.name}: {planting.fault.cause}", *kill.complaints])
