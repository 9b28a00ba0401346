"""Distances in units of the truth, from the truth and from another answer."""

import numpy as np
import pytest

from parity.diagnosis.conftest import answers_with
from parity.diagnosis.distance import between, from_truth, results
from parity.problem import Problem
from parity.run import run
from parity.shapes import RAGGED
from parity.unit import BLOCK
from parity.verdict import judge


@pytest.fixture
def case():
    def change(values):
        values["o"][1, 100, 2, 3] += 1e-3
        values["final_state"][0] += 1e-3

    return answers_with(change, Problem("long_memory", RAGGED, "f64"), 4)


@pytest.mark.parametrize("quantity", ["o", "final_state", "dk"])
def test_a_distance_from_the_truth_is_what_the_verdict_measured(case, quantity):
    found = from_truth(case, quantity, results(run(case.implementation, case.problem, 4))[quantity], BLOCK)
    findings = [judge(case).findings[rank, quantity] for rank in range(4)]
    assert np.array_equal(found, np.stack([finding.units for finding in findings]))


def test_a_shorter_block_is_a_nearer_look(case):
    found = from_truth(case, "o", run(case.implementation, case.problem, 4).pieces["o"], 16)
    assert found.shape == (4, 2, 6, 6)
    assert np.argwhere(found > 32).tolist() == [[1, 1, 1, 2]]  # token 100 is token 18 of rank 1


def test_an_answer_is_as_far_from_another_as_they_differ(case):
    pieces = run(case.implementation, case.problem, 4).pieces["o"]
    others = [piece.copy() for piece in pieces]
    assert not between(case, "o", pieces, others, BLOCK).any()
    others[2][0, 0, 0, 0] += 1.0
    assert np.argwhere(between(case, "o", pieces, others, BLOCK)).tolist() == [[2, 0, 0, 0]]


def test_what_neither_holds_is_the_same(case):
    pieces = run(case.implementation, case.problem, 4).pieces["o"]
    mine, theirs = ([piece.copy() for piece in pieces] for _ in range(2))
    mine[0][0, 0, 0, 0], theirs[0][0, 1, 0, 5] = np.nan, np.inf  # in one block
    assert between(case, "o", mine, theirs, BLOCK).max() == 0
    mine[3][1, 0, 0, 0] = np.inf
    assert np.argwhere(np.isinf(between(case, "o", mine, theirs, BLOCK))).tolist() == [[3, 1, 0, 0]]
