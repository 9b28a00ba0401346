"""Known mistakes: named where they were made, in other code than the catalogue's, and not where something else was."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.arithmetic import einsum
from implementations.chunked import chunk_step, chunked
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Implementation
from implementations.sequential import SEQUENTIAL
from parity.diagnosis import by_fault, candidates, planted
from parity.diagnosis.by_fault import resembling
from parity.diagnosis.candidates import candidates as candidates_of
from parity.diagnosis.conftest import answers_with
from parity.faults.catalogue import CATALOGUE
from parity.matrix import Case
from parity.problem import Problem
from parity.run import run
from parity.shapes import RAGGED
from parity.verdict import judge

FAULTS = {fault.name: fault for fault in CATALOGUE}
FEW = (
    "no_exchange",
    "previous_b_only",
    "update_with_u",
    "state_not_decayed",
    "value_heads_tiled",
    "one_head_reads_another_key",
    "tail_output_missing",
    "pads_write",
    "final_state_cotangent_dropped",
    "gradients_end_at_chunk_starts",
    "dg_of_head_0",
    "gate_of_head_0",
    "values_in_bf16",
    "keys_in_bf16",
)


@pytest.fixture(autouse=True)
def few_faults(monkeypatch):
    """A dozen, so that these tests are not the catalogue's; of each that is planted there is one that is near to it."""
    monkeypatch.setattr(candidates, "CATALOGUE", tuple(FAULTS[name] for name in FEW))
    monkeypatch.setattr(candidates, "NULL_MODELS", ())
    monkeypatch.setattr(by_fault, "_searched", {})
    monkeypatch.setattr(by_fault, "_fitted", {})


def case_of(implementation, regime="long_memory", ranks=1):
    return Case(implementation, Problem(regime, RAGGED, "f64"), ranks)


def named(case):
    return [resemblance.fault.name for resemblance in resembling(case).found]


def update_with_u(*inputs, **keywords):
    """The state takes up u, in other words than the catalogue's."""

    def step(h, chunk):
        _, o = chunk_step(h, chunk)
        return einsum("bhkv,bh->bhkv", h, chunk.decay) + einsum("bhck,bhcv->bhkv", chunk.k_decayed, chunk.u), o

    return chunked(*inputs, walk=lambda h, chunks: jax.lax.scan(step, h, chunks), **keywords)


def tail_missing(*inputs, **keywords):
    o, final_state = chunked(*inputs, **keywords)
    token = jnp.arange(o.shape[1])
    return jnp.where((token < o.shape[1] - o.shape[1] % keywords["chunk_size"])[:, None, None], o, 0), final_state


# Each is the fault of its name, in code that the catalogue does not plant it in.
ELSEWHERE = {
    "no_exchange": case_of(FAULTS["no_exchange"].on(TWO_PHASE), ranks=4),
    "update_with_u": case_of(Implementation("mine", update_with_u)),
    "tail_output_missing": case_of(Implementation("mine", tail_missing)),
    **{
        name: case_of(FAULTS[name].on(SEQUENTIAL), regime="typical")
        for name in ("value_heads_tiled", "final_state_cotangent_dropped", "dg_of_head_0", "gate_of_head_0")
    },
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_fault_is_named_in_other_code(name):
    search = resembling(ELSEWHERE[name])
    assert [resemblance.fault.name for resemblance in search.found] == [name]
    # In units of the truth: where that has decayed to nothing, the rounding of what stands there instead is many.
    assert search.found[0].units <= 1e-9 * search.found[0].oracle_units


def test_a_rounding_is_told_by_the_outputs_it_makes():
    """Its gradients are rounded where the code has them, which is not where the catalogue's has."""
    case = Case(FAULTS["values_in_bf16"].on(SEQUENTIAL), Problem("long_memory", RAGGED, "f32"), 1)
    (found,) = resembling(case).found
    assert found.fault.name == "values_in_bf16"
    assert found.units <= found.oracle_units / 1000


def test_a_mistake_that_is_not_in_the_catalogue_has_no_name():
    def wrong(values):
        values["o"] *= 1.0001

    assert named(answers_with(wrong, Problem("typical", RAGGED, "f64"), 1)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda values: np.negative(values["dv"], out=values["dv"]),
        lambda values: values["dg"].__setitem__((0, 200, 0), 1.0),
        lambda values: values["dk"].__setitem__((slice(None), 100), np.nan),
    ],
    ids=["another quantity", "an element of the head that is right", "not finite"],
)
def test_a_fault_with_something_else_beside_it_is_not_named(change):
    """As near as it was in all that the fault made wrong: what else is wrong speaks against it."""
    problem = Problem("typical", RAGGED, "f64")
    dropped = judge(case_of(FAULTS["dg_of_head_0"].on(SEQUENTIAL), regime="typical"))
    assert not dropped.passes
    answer = run(dropped.case.implementation, problem, 1)

    def fault_and_more(values):
        for name, pieces in answer.pieces.items():
            values[name][...] = pieces[0].reshape(values[name].shape)
        change(values)

    assert named(answers_with(fault_and_more, problem, 1)) == []


def test_faults_that_give_the_same_here_cannot_be_told_apart(monkeypatch):
    again = replace(FAULTS["gate_of_head_0"], name="another_name")
    others = tuple(FAULTS[name] for name in ("gate_ignored", "gate_base_two"))
    monkeypatch.setattr(candidates, "CATALOGUE", (FAULTS["gate_of_head_0"], *others, again))
    text = by_fault.read(judge(ELSEWHERE["gate_of_head_0"]))
    assert "(gate_of_head_0)" in text
    assert "(another_name)" in text
    assert "these cannot be told apart on this problem" in text
    assert "gate_ignored" not in text
    assert "gate_base_two" not in text


def test_what_fitted_an_earlier_failure_is_tried_first():
    first = ELSEWHERE["gate_of_head_0"]
    text = by_fault.read(judge(first)).splitlines()
    assert text[0].startswith("    within ")
    assert "head 0's gate decays every head (gate_of_head_0), where the oracle is" in text[0]
    assert int(text[1].split()[0].removeprefix("(")) > 1
    again = by_fault.read(judge(case_of(first.implementation, regime="long_memory")))
    assert "(gate_of_head_0)" in again
    assert "(1 known fault run on these inputs: what an earlier failure resembled)" in again


def test_a_compilation_is_searched_for_once():
    def nothing_known(values):
        values["o"] *= 1.0001

    case = answers_with(nothing_known, Problem("typical", RAGGED, "f64"), 1)
    other = Case(case.implementation, Problem("long_memory", RAGGED, "f64"), 1)
    assert by_fault.read(judge(case)) == ""
    assert by_fault.read(judge(other)) == (
        f"    the fault catalogue was run for {case.name}, the first failing case of this compilation"
    )
    assert by_fault.read(judge(case)) == ""


def test_only_what_can_be_it_is_run():
    on_one = {fault.name for fault in candidates_of(judge(ELSEWHERE["update_with_u"]))}
    assert {"update_with_u", "state_not_decayed", "gate_of_head_0"} <= on_one
    assert not on_one & {"no_exchange", "previous_b_only", "gradients_end_at_chunk_starts", "pads_write"}
    backward = {fault.name for fault in candidates_of(judge(ELSEWHERE["final_state_cotangent_dropped"]))}
    assert "gradients_end_at_chunk_starts" in backward
    assert not backward & {"update_with_u", "pads_write", "tail_output_missing"}
    over_ranks = {fault.name for fault in candidates_of(judge(ELSEWHERE["no_exchange"]))}
    assert "previous_b_only" in over_ranks
    assert "state_not_decayed" not in over_ranks  # rank 0 is right


def test_right_code_resembles_nothing():
    assert named(answers_with(lambda values: None, Problem("typical", RAGGED, "f64"), 1)) == []


def test_what_is_wrong_in_the_suites_own_code_is_no_known_mistake(monkeypatch):
    """The faults are made of that code: with the mistake in it, each of them that changes little is as near as any."""
    broken = Implementation("broken", update_with_u)
    monkeypatch.setattr(planted, "CHUNKED", broken)
    text = by_fault.read(judge(case_of(Implementation("mine", update_with_u))))
    assert text == "    the suite's own code gives the same result: the catalogue, made of it, tells nothing"
