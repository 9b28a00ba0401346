"""A part of the gate on two processes of four CPU devices each, within the limits of the gate."""

import pytest

import implementations
from parity.explain import measured
from parity.matrix import Case
from parity.processes.cases import CASES
from parity.processes.launch import answers
from parity.run import Answer
from parity.verdict import judge, judge_answer

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def answered() -> dict[Case, Answer]:
    """All cases, asked in one start of the processes."""
    return dict(zip(CASES, answers("parity.processes.cases:CASES"), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_over_two_processes(case: Case, answered: dict[Case, Answer]) -> None:
    verdict = judge_answer(case, answered[case])
    if not verdict.passes:
        alone = "within its limits" if judge(case).passes else "wrong too"
        pytest.fail(f"{measured(verdict)}\n\non the same ranks in one process: {alone}", pytrace=False)


def test_every_scheme_and_exchange_is_asked() -> None:
    over_ranks = {x.name for x in (*implementations.ALL, *implementations.VARIANTS) if x.context_parallel}
    assert {case.implementation.name for case in CASES} == over_ranks
    assert {case.problem.dtype for case in CASES} == {"f64", "f32", "bf16"}
    assert {case.layout.devices for case in CASES} == {8}
