"""Every fault once more in other code: the same quantity must fail in the same regime."""

import pytest

from parity.faults.catalogue import CATALOGUE
from parity.faults.elsewhere import EDITS, NOT_ELSEWHERE, PLANTED_ELSEWHERE
from parity.faults.fault import LEAST, Fault
from parity.matrix import Case
from parity.problem import Problem
from parity.verdict import judge

PLANTED = [fault for fault in CATALOGUE if fault.name in PLANTED_ELSEWHERE]


def test_every_fault_is_planted_elsewhere_or_listed_with_a_reason() -> None:
    names = {fault.name for fault in CATALOGUE}
    assert PLANTED_ELSEWHERE.keys() | NOT_ELSEWHERE.keys() == names
    assert not PLANTED_ELSEWHERE.keys() & NOT_ELSEWHERE.keys()
    assert EDITS.keys() <= PLANTED_ELSEWHERE.keys()
    assert all(reason.strip() for reason in NOT_ELSEWHERE.values())


@pytest.mark.faults
@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_fault_planted_elsewhere_is_caught_where_it_says(fault: Fault) -> None:
    problem = Problem(fault.regimes[0], fault.shape, fault.dtype, packing=fault.packing)
    verdict = judge(Case(PLANTED_ELSEWHERE[fault.name], problem, fault.ranks))
    last = fault.ranks - 1 if fault.last_bad_rank is None else fault.last_bad_rank
    for rank in range(fault.first_bad_rank, last + 1):
        finding = verdict.findings[rank, fault.quantity]
        assert finding.failure is None
        assert finding.worst_units >= LEAST * finding.limit, f"rank {rank}"
