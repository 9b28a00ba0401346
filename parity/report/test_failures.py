"""What is kept of a failing case says what its verdict said."""

from dataclasses import replace

import numpy as np

from implementations.context_parallel.two_phase import TWO_PHASE
from oracles.gated_delta_rule import QUANTITIES
from parity.matrix import Case
from parity.problem import Problem
from parity.report.failures import STATES, Failure, worst_first
from parity.report.from_verdict import failure_of
from parity.run import REPLICATED
from parity.shapes import RAGGED
from parity.verdict import Finding, Verdict


def _verdict() -> Verdict:
    """On two ranks of 164 tokens: dq is over its limit on rank 1, row 1, block 2 and head 0; dh0 was not measured."""
    findings = {}
    for rank in range(2):
        units = np.full((2, 3, 2), 1.0)
        units[1, 2, 0] += 99.0 * rank
        findings[rank, "dq"] = Finding(rank, "dq", units, 32.0, "f64", 0.5, None)
        findings[rank, "final_state"] = Finding(rank, "final_state", np.full((2, 1, 6), 2.0), 32.0, "f64", 0.5, None)
        findings[rank, "dh0"] = Finding(
            rank, "dh0", np.full((1, 1, 1), np.inf), 32.0, "f64", np.inf, None, "RuntimeError: no"
        )
    return Verdict(Case(TWO_PHASE, Problem("typical", RAGGED, "f64"), 2), findings)


def test_a_failure_holds_every_quantity_by_rank_row_block_and_head() -> None:
    failure = failure_of(_verdict(), "the message")
    assert failure.case == "two_phase-f64-typical-ragged"
    assert (failure.ranks, failure.tokens, failure.chunk_size, failure.message) == (2, 328, 16, "the message")
    assert list(failure.quantities) == ["final_state", "dq", "dh0"]
    assert failure.quantities["dq"].units[1][1][2][0] == failure.quantities["dq"].worst == 100.0
    assert failure.quantities["dq"].limit_row == "f64"
    assert list(failure.wrong) == ["dh0", "dq"]  # furthest first
    assert list(failure.right) == ["final_state"]
    assert failure.quantities["dh0"].not_measured == "RuntimeError: no"


def test_blocks_are_counted_within_a_rank(failure: Failure) -> None:
    assert [failure.token_range(*place) for place in ((0, 0), (0, 1), (2, 1))] == [(0, 63), (64, 99), (264, 299)]
    assert (failure.blocks("o"), failure.blocks("dh0")) == (2, 1)
    assert [replace(failure, tokens=3 * n).blocks("o") for n in (65, 128)] == [2, 2]


def test_the_worst_case_comes_first(failure: Failure) -> None:
    mild = replace(failure, case="mild", quantities={"o": replace(failure.quantities["dq"], limit=0.1)})
    assert [found.case for found in worst_first([mild, failure])] == [failure.case, "mild"]


def test_states_are_the_quantities_that_every_rank_holds_alike() -> None:
    assert {q for q in QUANTITIES if q in REPLICATED} == set(STATES)
