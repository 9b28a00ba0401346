"""The message of a failure: everything that a person needs, once."""

import re
from functools import partial

import jax.numpy as jnp
import pytest
from jaxtyping import Array

from implementations import Implementation
from implementations.chunked import CHUNKED, chunked
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import FEATURES
from parity import explain as explain_module
from parity import gate
from parity.diagnosis import candidates
from parity.explain import explain
from parity.faults.catalogue import CATALOGUE
from parity.faults.planted import no_exchange
from parity.matrix import Case, Item
from parity.problem import Problem
from parity.report.accuracy import Record
from parity.report.failures import Failure
from parity.shapes import RAGGED, SHORT
from parity.verdict import Verdict, judge


@pytest.fixture(autouse=True)
def few_known_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue is run on a failure; three of its faults are enough here."""
    few = tuple(fault for fault in CATALOGUE if fault.name in ("no_exchange", "gate_of_head_0", "dh0_dropped"))
    monkeypatch.setattr(candidates, "CATALOGUE", few)
    monkeypatch.setattr(candidates, "NULL_MODELS", ())


def _message(implementation: Implementation, shape=SHORT, ranks: int = 1, quantity: str = "o", rank: int = 0) -> str:
    item = Item(Case(implementation, Problem("long_memory", shape, "f64"), ranks), rank, quantity)
    return explain(item, judge(item.case), "the command")


def _one_wrong_element(*inputs: Array, **keywords: object) -> tuple[Array, Array]:
    o, final_state = chunked(*inputs, **keywords)
    return o.at[1, 5, 4, 3].set(2.5), final_state


def test_a_fault_of_the_hand_over_is_seen_from_its_rank_on() -> None:
    text = _message(no_exchange, RAGGED, ranks=4, rank=1)
    row = next(line for line in text.splitlines() if line.strip().startswith("o "))
    first, *others = (float(x) for x in re.findall(r"\d: (\S+)", row))
    assert first <= 32
    assert min(others) > 32_000
    assert "WRONG" in row
    assert "first bad block of o: rank 1, tokens 82 to 145" in text
    assert re.search(r"no_exchange on one rank: right \(worst \S+ units", text)
    assert re.search(r"chunked: right \(worst \S+ units", text)
    assert "by balls of" in text
    assert "where\n    right on rank 0 and wrong from rank 1 on" in text
    assert "known mistakes\n    within" in text
    assert "no exchange between ranks: every rank but the first starts from zero (no_exchange, as in maxtext" in text
    assert text.endswith("the command")
    # worst first: no quantity is followed by one that is further over its limit
    units = [float(line.split()[1]) for line in text.split("units per rank\n")[1].split("\n\n")[0].splitlines()]
    assert units == sorted(units, reverse=True)
    assert len(units) == 8


def test_the_worst_element_is_named_with_both_values_in_decimal_and_hex() -> None:
    text = _message(Implementation("one_wrong_element", _one_wrong_element))
    assert "o[1, 5, 4, 3] (row, token, head, element) on rank 0" in text
    assert re.search(r"got +2\.5 +0x1\.4000000000000p\+1", text)
    assert re.search(r"want +\S+ +-?0x1\.[0-9a-f]{13}p", text)
    assert "in 1 of 12 rows and heads: row 1 head 4" in text


def test_what_is_not_known_is_left_out() -> None:
    text = _message(Implementation("one_wrong_element", _one_wrong_element))
    assert "known mistakes" not in text
    assert "stages" not in text


def test_a_diagnosis_that_fails_does_not_hide_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(verdict: Verdict) -> str:
        raise ZeroDivisionError("of a\ndiagnosis")

    for module in ("by_place", "by_precision", "by_stage", "by_fault", "controls"):
        monkeypatch.setattr(getattr(explain_module, module), "read", broken)
    text = _message(Implementation("one_wrong_element", _one_wrong_element))
    assert text.count("\n    not known: ZeroDivisionError: of a diagnosis\n") == 5
    assert "o[1, 5, 4, 3] (row, token, head, element) on rank 0" in text
    assert text.endswith("the command")


def test_stages_that_break_the_contract_are_said_to() -> None:
    wrong = Implementation("one_wrong_element", _one_wrong_element, stages=lambda *_, **__: {"w": jnp.zeros(3)})
    assert "stages\n    not known: BadStages: stage w must be [R N B Hv C K]" in _message(wrong)


def test_what_was_raised_is_shown_once_with_what_it_cost() -> None:
    def raises(*inputs: Array, scale: float | None, chunk_size: int) -> tuple[Array, Array]:
        raise RuntimeError("no such kernel")

    text = _message(Implementation("raises", raises))
    assert text.count("RuntimeError: no such kernel") == 2  # in the headline and after its traceback
    assert "o, final_state, dq, dk, dv, dg, dbeta, dh0: not measured" in text
    assert "test_explain.py" in text
    assert "parity/run.py" not in text


def test_a_wrong_dtype_names_both() -> None:
    def narrow(*inputs: Array, **keywords: object) -> tuple[Array, Array]:
        o, final_state = chunked(*inputs, **keywords)
        return o.astype(jnp.float32), final_state

    text = _message(Implementation("narrow", narrow, supports=FEATURES - {"gradients"}))
    assert "o must be float64[2, 8, 6, 24], like v; got float32[2, 8, 6, 24]" in text


def test_the_other_control_of_chunked_itself_is_sequential() -> None:
    item = Item(Case(CHUNKED, Problem("long_memory", SHORT, "f64"), 1), 0, "o")
    assert "sequential: right" in explain(item, judge(item.case), "the command")


def test_a_case_is_explained_once_and_referred_to_after_that() -> None:
    fault = Implementation("explained_once", _one_wrong_element)
    records: list[Record | Failure] = []
    case = Case(fault, Problem("typical", SHORT, "f64"), 1)
    messages = []
    for quantity in ("o", "final_state", "dv"):
        try:
            gate.check(Item(case, 0, quantity), records.append, "the command")
        except pytest.fail.Exception as failure:
            messages.append(str(failure))
    assert len(messages) == 2  # the wrong element cuts dv off, and leaves the state alone
    assert "worst first" in messages[0]
    assert "worst first" not in messages[1]
    assert f"explained at {Item(case, 0, 'o').name}" in messages[1]
    judged = [(r.quantity, r.passes) for r in records if isinstance(r, Record)]
    assert judged == [("o", False), ("final_state", True), ("dv", False)]
    kept = [r for r in records if isinstance(r, Failure)]
    assert [(r.message, list(r.right)) for r in kept] == [(messages[0], ["final_state"])]


def test_a_mesh_larger_than_the_devices_fails_with_the_reason() -> None:
    case = Case(
        Implementation("many", partial(two_phase), context_parallel=True), Problem("typical", RAGGED, "f64"), 328
    )
    with pytest.raises(pytest.fail.Exception, match="328 ranks need 328 devices, and jax has 8"):
        gate.check(Item(case, 0, "o"), lambda record: None, "")
