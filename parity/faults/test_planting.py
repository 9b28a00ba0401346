"""Where a fault is put in somebody else's implementation: dtype, ranks and margin, and why not."""

from dataclasses import replace

import pytest

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from parity.faults.catalogue import CATALOGUE
from parity.faults.fault import LEAST, STRUCTURAL, NotApplicable
from parity.faults.planting import Planting, plantings

BY_NAME = {fault.name: fault for fault in CATALOGUE}
F32 = replace(CHUNKED, name="mine", arithmetic={"f32": "f32"})
IN_BF16 = replace(CHUNKED, name="mine", arithmetic={"bf16": "bf16"})


def planting(name, implementation):
    return Planting(BY_NAME[name], "long_memory", implementation)


@pytest.mark.parametrize(
    ("implementation", "dtype", "margin"),
    [(None, "f64", STRUCTURAL), (CHUNKED, "f64", STRUCTURAL), (F32, "f32", LEAST), (IN_BF16, "bf16", LEAST)],
)
def test_a_structural_fault_is_planted_in_the_finest_dtype_that_is_claimed(implementation, dtype, margin):
    found = planting("scale_twice", implementation)
    assert (found.dtype, found.margin) == (dtype, margin)
    assert found.case().problem.dtype == dtype


def test_one_of_precision_keeps_its_own():
    assert planting("gate_in_bf16", F32).case().problem.dtype == "f32"
    with pytest.raises(NotApplicable, match="no arithmetic is claimed for f64"):
        planting("f64_in_f32", F32).case()
    with pytest.raises(NotApplicable, match="no arithmetic is claimed for bf16"):
        planting("gate_in_bf16_like_the_tokens", F32).case()


def test_and_says_nothing_where_its_arithmetic_is_all_that_is_claimed():
    with pytest.raises(NotApplicable, match="claims no more than bf16 arithmetic"):
        planting("gate_in_bf16_like_the_tokens", IN_BF16).case()


@pytest.mark.parametrize(
    ("name", "implementation", "ranks"),
    [
        ("scale_twice", None, 1),
        ("scale_twice", CHUNKED, 1),
        ("scale_twice", TWO_PHASE, 4),
        ("mesh_axes_swapped", None, 8),
        ("mesh_axes_swapped", TWO_PHASE, 8),
    ],
)
def test_a_context_parallel_implementation_runs_on_more_than_one_rank(name, implementation, ranks):
    assert planting(name, implementation).case().ranks == ranks


def test_what_is_not_claimed_cannot_be_wrong():
    without = replace(CHUNKED, name="mine", supports=CHUNKED.supports - {"gradients"})
    with pytest.raises(NotApplicable, match="no gradients"):
        planting("dh0_dropped", without).case()
    assert planting("scale_twice", without).case()


def test_all_regimes_of_all_faults_and_those_that_are_wraps_elsewhere():
    at_home, elsewhere = plantings(CATALOGUE), plantings(CATALOGUE, (F32,))
    assert len(at_home) == sum(len(fault.regimes) for fault in CATALOGUE)
    assert {x.fault.name for x in elsewhere} == {fault.name for fault in CATALOGUE if fault.wrap is not None}
    assert len({x.name for x in (*at_home, *elsewhere)}) == len(at_home) + len(elsewhere)
