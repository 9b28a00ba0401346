"""Copies of the same data that differ are the failure that they are in one process, wherever their devices are."""

import pytest

from parity.processes.disagreeing import CASES
from parity.processes.launch import answers
from parity.run import run
from parity.verdict import judge_answer

pytestmark = pytest.mark.processes

WHERE = [
    ("final_state", "{}: those of processes 0 and 1 on rank 0, 1, 2, 3"),
    ("o", "{}: those of processes 0 and 1 on rank 0, 1, 2, 3"),
    ("final_state", "in process 1: {}"),
]


@pytest.fixture(scope="module")
def answered():
    return answers("parity.processes.disagreeing:CASES")


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_copies_that_differ_are_red(number, answered):
    case, (quantity, where) = CASES[number], WHERE[number]
    in_one_process = run(case.implementation, case.problem, case.over).failures
    assert list(in_one_process) == [quantity]
    said, found, _ = in_one_process[quantity].partition("do not agree")
    assert found
    assert list(answered[number].failures) == [quantity]
    assert answered[number].failures[quantity].startswith(where.format(said + found))
    verdict = judge_answer(case, answered[number])
    assert {q for (_, q), finding in verdict.findings.items() if not finding.passes} == {quantity}
