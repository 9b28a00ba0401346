"""The suite is worth what it catches: every fault, in the quantity that it names, by a wide margin."""

import pytest

from parity.faults.catalogue import CATALOGUE
from parity.faults.fault import Fault
from parity.matrix import Case
from parity.problem import Problem
from parity.verdict import judge


@pytest.mark.parametrize("fault", CATALOGUE, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_quantity_it_names(fault: Fault) -> None:
    for regime in fault.regimes:
        verdict = judge(Case(fault.implementation, Problem(regime, fault.shape, fault.dtype), fault.ranks))
        for rank in range(fault.ranks):
            finding = verdict.findings[rank, fault.quantity]
            assert finding.failure is None
            margin = finding.worst_units / finding.limit
            print(fault.name, rank, margin)
            assert margin <= 1 if rank < fault.first_bad_rank else margin >= fault.margin
        for quantity in fault.right:
            assert verdict.worst_units(quantity) < 32, quantity
