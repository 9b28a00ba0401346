"""The first stage that is wrong: what is planted there is named there, and nothing is named where nothing is wrong."""

import numpy as np
import pytest

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import FEATURES, STAGES, Implementation
from implementations.sequential import SEQUENTIAL
from oracles.gated_delta_rule import stages as oracle
from parity.diagnosis import by_stage
from parity.diagnosis.by_stage import BadStages, stage_units
from parity.diagnosis.conftest import answers_with
from parity.faults.catalogue import CATALOGUE
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge

PROBLEM = Problem("long_memory", RAGGED, "f64")


def test_the_oracle_and_the_contract_name_the_same_stages():
    assert tuple(STAGES) == oracle.STAGES


@pytest.mark.parametrize(
    ("implementation", "ranks", "exposed"),
    [(CHUNKED, 1, {"S", "T", "w", "u", "entering_chunk"}), (TWO_PHASE, 4, set(STAGES))],
    ids=["chunked", "two_phase"],
)
@pytest.mark.parametrize(("regime", "dtype"), [("strong_decay", "f64"), ("beta_near_two", "f32")])
def test_the_stages_of_right_code_are_right(implementation, ranks, exposed, regime, dtype):
    units = stage_units(Case(implementation, Problem(regime, RAGGED, dtype), ranks))
    assert units.keys() == exposed
    assert all(found.max() <= 8 for found in units.values())


def read(change, ranks=4, drop=(), problem=PROBLEM):
    """The reading of an answer that is wrong in `o`, and whose stages are the oracle's with `change` made to them."""

    def stages(*inputs, scale, chunk_size, **mesh):
        values = oracle.stages(*(np.asarray(x, np.float64) for x in inputs), ranks=ranks, chunk_size=chunk_size)
        found = dict(zip(oracle.STAGES, values, strict=True))
        change(found)
        return {name: x for name, x in found.items() if name not in drop}

    def wrong_output(values):
        values["o"] += 1.0

    return by_stage.read(judge(answers_with(wrong_output, problem, ranks, stages=stages))).strip()


def test_the_first_wrong_stage_is_named_with_its_place():
    def change(stages):
        stages["w"][1, 2, 1, 4] += 1.0
        stages["entering_chunk"] += 1.0

    found = read(change)
    assert found.startswith("the first stage that is wrong: w, from rank 1, chunk 2, row 1, head 4 on: ")
    assert "over the limit of 32 in 1 of 288 ranks, chunks, rows and heads" in found
    assert found.endswith("; S and T before it are right")


def test_what_belongs_to_a_rank_has_no_chunk():
    def change(stages):
        stages["entering_rank"][2:] += 1.0

    found = read(change, drop=("S", "T", "w", "u"))
    assert found.startswith("the first stage that is wrong: entering_rank, from rank 2, row 0, head 0 on: ")
    assert "in 24 of 48 ranks, rows and heads; A and B before it are right" in found


def test_right_stages_are_said_to_be_right():
    assert read(lambda stages: None, ranks=1, drop=("A", "B", "entering_rank", "entering_chunk")) == (
        "S, T, w and u are right: what is wrong comes after the stages"
    )


def test_what_is_not_finite_is_wrong():
    def change(stages):
        stages["T"][0, 0, 0, 0, 3, 1] = np.nan

    assert read(change, ranks=1).startswith(
        "the first stage that is wrong: T, from rank 0, chunk 0, row 0, head 0 on: inf"
    )


def test_rows_of_padding_are_nobodys_business():
    """On four ranks the last chunk holds two tokens of sixteen."""

    def pads(stages):
        for name in ("S", "T", "w", "u"):
            stages[name][:, -1, :, :, 2:] = 7.0

    def one_more(stages):
        stages["u"][:, -1, :, :, 1:] = 7.0

    assert read(pads).endswith("are right: what is wrong comes after the stages")
    assert read(one_more).startswith("the first stage that is wrong: u, from rank 0, chunk 5, row 0, head 0 on")


@pytest.mark.parametrize(
    ("name", "ranks", "first"),
    [
        ("s_without_decay", 1, "S"),
        ("t_transposed", 1, "T"),
        ("w_without_beta", 1, "w"),
        ("update_with_u", 1, "entering_chunk"),
        ("transition_sign", 4, "A"),
        ("earlier_writes_lost", 4, "B"),
        ("previous_b_only", 4, "entering_rank"),
    ],
)
def test_a_mistake_in_our_own_code_is_found_where_it_was_made(name, ranks, first):
    fault = next(fault for fault in CATALOGUE if fault.name == name)
    units = stage_units(Case(fault.planted(ranks > 1), PROBLEM, ranks))
    wrong = [stage for stage, found in units.items() if not found.max() <= 32]
    assert wrong[0] == first


def test_an_implementation_without_stages_has_no_reading():
    assert by_stage.read(judge(Case(SEQUENTIAL, Problem("typical", RAGGED, "f64"), 1))) == ""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"w": np.zeros((1, 21, 2, 6, 24, 16))},
            r"stage w must be .R N B Hv C K. = .1, 21, 2, 6, 16, 16.; it is .1, 21,",
        ),
        ({"w": np.zeros(3), "W": np.zeros(3)}, r"any of S, T, w, .*; it returned .'W', 'w'."),
        ({}, r"it returned \[\]"),
        ([1, 2], "it returned list"),
    ],
    ids=["shape", "name", "nothing", "type"],
)
def test_stages_that_break_the_contract_are_refused(returned, message):
    implementation = Implementation(
        "bad", CHUNKED.call, stages=lambda *_, **__: returned, traceable=False, supports=FEATURES - {"gradients"}
    )
    with pytest.raises(BadStages, match=message):
        stage_units(Case(implementation, PROBLEM, 1))
