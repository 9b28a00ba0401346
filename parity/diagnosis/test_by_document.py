"""A failure says which of the packed documents are wrong."""

from implementations.chunked import CHUNKED
from implementations.contract import Implementation
from oracles.gated_delta_rule import GRADIENTS
from parity.diagnosis import by_document
from parity.faults.catalogue import CATALOGUE
from parity.faults.edits import Edit, edited
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge

FAULTS = {fault.name: fault for fault in CATALOGUE}


def verdict(name, packing="long"):
    return judge(Case(FAULTS[name].on(CHUNKED), Problem("long_memory", RAGGED, "f64", packing=packing), 1))


def test_the_side_from_which_it_comes_is_named():
    said = by_document.read(verdict("documents_leak"))
    assert said == (
        "    5 of 7 documents are wrong, and in no row the first: "
        "the state of one document reaches the next, or is lost in the wrong place"
    )


def test_backward_it_comes_from_the_other_side():
    """What the first token of a document wants of a state that it did not get is sent to the document before."""
    name, reset = "implementations.sequential", "jnp.where(is_first[:, None, None, None], 0, h)"
    call = edited(f"{name}:sequential", Edit(name, reset, f"h + jax.lax.stop_gradient({reset} - h)"))
    planted = Implementation("planted", call, {"f64": "f64"}, packed=True)
    found = judge(Case(planted, problem(), 1))
    assert {quantity for (_, quantity), x in found.findings.items() if not x.passes} <= set(GRADIENTS)
    assert by_document.read(found) == (
        "    5 of 7 documents are wrong, and in no row the last: "
        "the cotangent of one document's state reaches the one before"
    )


def test_where_it_comes_from_no_side_none_is_named():
    assert by_document.read(verdict("gradients_cross_documents")) == (
        "    7 of 7 documents are wrong, the last of a row among them"
    )
    assert by_document.read(verdict("k_and_q_swapped")).endswith("documents are wrong, the first of a row among them")


def problem():
    return Problem("long_memory", RAGGED, "f64", packing="long")


def test_nothing_is_said_of_what_is_right_or_is_one_document():
    assert by_document.read(judge(Case(CHUNKED, problem(), 1))) == ""
    unpacked = Problem("long_memory", RAGGED, "f64")
    assert by_document.read(judge(Case(FAULTS["k_and_q_swapped"].on(CHUNKED), unpacked, 1))) == ""
