"""The tables themselves: names, margins, and edits that find their place."""

import dataclasses
from collections import Counter

import pytest

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.sequential import SEQUENTIAL
from oracles.gated_delta_rule import GRADIENTS, QUANTITIES
from parity.faults import planted
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.edits import Edit
from parity.faults.fault import LEAST, STRUCTURAL, Fault, NotApplicable
from parity.faults.invisible import INVISIBLE
from parity.faults.kills import EVERY_QUANTITY
from parity.matrix import EVERY

ALL = (*CATALOGUE, *NULL_MODELS)
each_fault = pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)

BY_NAME = {fault.name: fault for fault in ALL}


def test_names_are_unique():
    names = Counter(x.name for x in (*ALL, *INVISIBLE))
    assert [name for name, count in names.items() if count > 1] == []
    causes = Counter(x.cause for x in (*ALL, *INVISIBLE))
    assert [cause for cause, count in causes.items() if count > 1] == []


@each_fault
def test_a_fault_is_built_where_it_says_and_once(fault):
    """Every edit finds its place in the source as it is now."""
    assert fault.implementation is fault.implementation
    assert fault.implementation.name == fault.name
    assert fault.implementation.context_parallel == (fault.ranks > 1)
    assert getattr(planted, fault.name, fault.implementation) is fault.implementation
    assert "\n" not in fault.cause


@each_fault
def test_what_it_claims_can_be_tested(fault):
    assert fault.quantity in (*QUANTITIES, EVERY_QUANTITY)
    assert fault.regimes
    assert set(fault.regimes) <= set(EVERY) - {"orthogonal_write"}
    assert not set(fault.right) & set(fault.must_fail)
    assert fault.margin >= (LEAST if fault.kind == "precision" or fault.dtype != "f64" else STRUCTURAL)
    assert (
        fault.first_bad_rank <= (fault.ranks - 1 if fault.last_bad_rank is None else fault.last_bad_rank) < fault.ranks
    )


def test_a_fault_of_the_backward_leaves_the_outputs_right():
    for fault in CATALOGUE:
        if fault.kind == "backward":
            assert fault.quantity in GRADIENTS, fault.name
            assert {"o", "final_state"} <= set(fault.right), fault.name


def test_every_invisible_edit_finds_its_place():
    for invisible in INVISIBLE:
        assert invisible.implementation is invisible.implementation
        assert invisible.proof


# Where a fault can be planted


def test_an_edit_of_sequential_is_not_over_ranks():
    fault = BY_NAME["error_before_decay"]
    assert fault.planted(context_parallel=True) is None
    assert fault.planted(context_parallel=False).name == "error_before_decay"


def test_an_edit_of_a_chunk_is_in_both():
    fault = BY_NAME["update_with_u"]
    assert fault.planted(context_parallel=True).context_parallel
    assert not fault.planted(context_parallel=False).context_parallel


@pytest.mark.parametrize("name", ["previous_b_only", "mesh_axes_swapped"])
def test_a_fault_between_ranks_needs_ranks(name):
    assert BY_NAME[name].planted(context_parallel=False) is None
    assert BY_NAME[name].planted(context_parallel=True) is not None


def test_the_stages_of_an_edited_record_are_edited_too():
    planted_in = BY_NAME["s_without_decay"].implementation
    assert planted_in.stages is not CHUNKED.stages
    assert planted_in.stages.__globals__["prepare_in_stages"] is planted_in.call.__globals__["prepare_in_stages"]


def test_a_wrap_goes_around_any_implementation():
    found = BY_NAME["beta_constant"].on(SEQUENTIAL)
    assert found.name == "sequential_with_beta_constant"
    assert (found.arithmetic, found.supports) == (SEQUENTIAL.arithmetic, SEQUENTIAL.supports)


@pytest.mark.parametrize(("name", "why"), [("update_with_u", "source code"), ("mesh_axes_swapped", "has one")])
def test_and_what_does_not_says_why(name, why):
    with pytest.raises(NotApplicable, match=why):
        BY_NAME[name].on(SEQUENTIAL)
    if "mesh" in name:
        assert BY_NAME[name].on(TWO_PHASE).context_parallel


def test_a_fault_is_made_in_one_way():
    edit = Edit("implementations.chunked", "einsum", "einsum")
    with pytest.raises(ValueError, match="by edits or by a wrap"):
        Fault("nothing", "nothing", "chunk", "o", ("typical",))
    with pytest.raises(ValueError, match="by edits or by a wrap"):
        dataclasses.replace(BY_NAME["beta_constant"], edits=(edit,))


def test_a_name_that_is_no_fault_is_refused():
    with pytest.raises(AttributeError, match="has no no_such_fault; its faults are no_exchange, "):
        planted.no_such_fault  # noqa: B018
