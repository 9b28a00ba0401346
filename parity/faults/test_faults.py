"""The suite is worth what it catches: every fault, in the quantity that it names, by a wide margin."""

import pytest

from oracles.gated_delta_rule import QUANTITIES
from parity.faults.catalogue import CATALOGUE, LEAST_MARGIN, NULL_MODELS, Fault
from parity.verdict import judge


def _margin(fault: Fault, rank: int, quantity: str) -> float:
    finding = judge(fault.case).findings[rank, quantity]
    assert finding.failure is None, finding.failure  # a fault that cannot be measured proves nothing
    return finding.worst_units / finding.limit


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_quantity_it_names(fault: Fault) -> None:
    for rank in range(fault.ranks):
        margin = _margin(fault, rank, fault.quantity)
        if rank < fault.first_bad_rank:
            assert margin <= 1, f"rank {rank} should be right"
        else:
            assert margin >= LEAST_MARGIN, f"rank {rank} is off by {margin:.3g} limits"
    for quantity in fault.right:
        assert all(_margin(fault, rank, quantity) <= 1 for rank in range(fault.ranks)), f"{quantity} should be right"


@pytest.mark.parametrize("fault", NULL_MODELS, ids=lambda fault: fault.name)
def test_a_null_model_fails_in_every_quantity(fault: Fault) -> None:
    margins = {quantity: _margin(fault, 0, quantity) for quantity in QUANTITIES}
    assert min(margins.values()) >= LEAST_MARGIN, margins
