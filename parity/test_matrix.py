"""The gate meets what it must, and every test has a name of its own."""

import re
from collections import Counter
from itertools import groupby

import pytest

import implementations
from implementations.contract import FEATURES, Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS, QUANTITIES
from parity.layouts import (
    BESIDE_BOTH,
    BESIDE_OTHERS,
    LAYOUTS,
    MANUAL,
    MINOR_FIRST,
    SEVERAL_AXES,
    SHUFFLED,
    TWO_BY_FOUR,
    ZIGZAG,
    ZIGZAG_MINOR_FIRST,
    over,
)
from parity.matrix import FULL, GATE, MESHES, Case, Item, cases, items
from parity.packing import PACKINGS
from parity.precision import DTYPES
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.shapes import ALIGNED, RAGGED, SHAPES, SHORT, SINGLE, Shape

ID = re.compile(r"[a-z0-9_]+-(f64|f32|bf16)-[a-z0-9_]+-[a-z0-9_]+-shard\d+of\d+-(o|final_state|dq|dk|dv|dg|dbeta|dh0)")

IN_GATE = cases(implementations.ALL)
CONTEXT_PARALLEL = [implementation for implementation in implementations.ALL if implementation.context_parallel]
VARIANTS_OVER_RANKS = [variant for variant in implementations.VARIANTS if variant.context_parallel]

each_implementation = pytest.mark.parametrize("implementation", implementations.ALL, ids=lambda i: i.name)


def call(*inputs, **keywords):
    raise AssertionError("the matrix runs nothing")


def claiming(**claims):
    return Implementation("kernel", call, **claims)


def item(implementation, *, shape=RAGGED, regime="typical", dtype="f64", ranks=1, rank=0, quantity="o"):
    return Item(Case(implementation, Problem(regime, shape, dtype), ranks), rank, quantity)


# Names


def test_every_id_is_well_formed_and_unique():
    names = [item.name for item in items([*IN_GATE, *cases(implementations.VARIANTS)])]
    assert [name for name in names if not ID.fullmatch(name)] == []
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_an_id_says_over_what_it_is_unless_that_is_one_axis():
    found = item(CONTEXT_PARALLEL[0], ranks=MINOR_FIRST, rank=3)
    assert found.name == "two_phase-f64-typical-ragged_on_2x4_minor_first-shard3of8-o"
    assert found.case.compilation == "two_phase-f64-ragged_on_2x4_minor_first-8ranks"
    assert item(CONTEXT_PARALLEL[0], ranks=ZIGZAG, rank=7).name.endswith("-ragged_on_zigzag4-shard7of8-o")


def test_an_id_says_what_it_is():
    (two_phase,) = (i for i in implementations.ALL if i.name == "two_phase")
    found = item(two_phase, regime="long_memory", ranks=4, rank=1, quantity="dk").name
    assert found == "two_phase-f64-long_memory-ragged-shard1of4-dk"
    fresh = Item(Case(two_phase, Problem("typical", SHORT, "bf16", seed=17), 2), 0, "final_state")
    assert fresh.name == "two_phase-bf16-typical_seed17-short-shard0of2-final_state"
    assert ID.fullmatch(fresh.name)


def test_every_quantity_of_every_rank_is_an_item():
    case = Case(CONTEXT_PARALLEL[0], Problem("typical", RAGGED, "f64"), 4)
    assert [(i.rank, i.quantity) for i in items([case])] == [(r, q) for r in range(4) for q in QUANTITIES]
    assert [i.quantity for i in items([case], ("dg",))] == ["dg"] * 4


# Compilations


def test_a_compilation_has_one_implementation_dtype_shape_and_number_of_ranks():
    keys = {}
    for case in IN_GATE:
        key = (case.implementation, case.problem.dtype, case.problem.shape, case.layout, bool(case.problem.packing))
        assert keys.setdefault(case.compilation, key) == key
    assert len(set(keys.values())) == len(keys)


def test_the_cases_of_a_compilation_are_together():
    runs = [compilation for compilation, _ in groupby(IN_GATE, lambda case: case.compilation)]
    assert len(runs) == len(set(runs))


def test_the_gate_is_small_enough_to_run_on_every_merge():
    """A gradient program takes seconds to compile: one for each dtype and shape, a few more meshes and layouts, and of
    packed documents as few as show them in every dtype, shape and order of ranks that they may be lost in.
    """
    for implementation in implementations.ALL:
        compilations = {case.compilation for case in cases([implementation])}
        packed = {name for name in compilations if name.endswith("-packed")}
        dtypes_and_shapes = len(DTYPES) * len(SHAPES)
        assert len(compilations - packed) <= dtypes_and_shapes + (21 if implementation.context_parallel else 0)
        assert len(packed) <= (6 if implementation.context_parallel else 5)
    for implementation in implementations.VARIANTS:
        assert len({case.compilation for case in cases([implementation])}) <= 16


# What meets what


@each_implementation
def test_every_implementation_meets_every_regime_in_f64_and_f32(implementation):
    for dtype in {"f64", "f32"} & implementation.arithmetic.keys():
        met = {case.problem.regime for case in cases([implementation]) if case.problem.dtype == dtype}
        assert met == set(REGIMES)


@each_implementation
def test_every_implementation_meets_every_shape_and_dtype(implementation):
    mine = cases([implementation])
    assert {case.problem.shape for case in mine} == set(SHAPES.values())
    assert {case.problem.dtype for case in mine} == set(DTYPES)


@pytest.mark.parametrize("implementation", CONTEXT_PARALLEL, ids=lambda i: i.name)
def test_context_parallelism_meets_three_chunks_on_each_of_three_ranks(implementation):
    """With one chunk on a rank, or two ranks, whole classes of faults cannot be seen."""
    for dtype in {"f64", "f32"} & implementation.arithmetic.keys():
        sharp = {
            case.problem.regime
            for case in cases([implementation])
            if case.problem.dtype == dtype and case.ranks >= 3 and chunks_of_a_rank(case) >= 3
        }
        assert sharp == set(REGIMES)


@pytest.mark.parametrize("implementation", CONTEXT_PARALLEL, ids=lambda i: i.name)
def test_context_parallelism_meets_the_awkward_splits(implementation):
    mine = [case for case in cases([implementation]) if case.problem.dtype == "f64"]
    assert {case.ranks for case in mine} >= {1, 2, 4, 5, 8}
    tokens = {case.problem.shape.T // case.ranks for case in mine}
    assert 1 in tokens  # a rank of one token
    assert any(case.ranks >= 3 and case.problem.shape.T // case.ranks % case.problem.shape.chunk_size for case in mine)
    assert any(
        case.ranks >= 3 and not case.problem.shape.T // case.ranks % case.problem.shape.chunk_size for case in mine
    )


@each_implementation
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_size_is_always_the_same_or_a_multiple_of_two(implementation, dtype):
    """Or code that takes it for granted is right wherever it is asked."""
    shapes = {case.problem.shape for case in cases([implementation]) if case.problem.dtype == dtype}
    for size in ("B", "T", "Hk", "Hv", "K", "V"):
        assert len({getattr(shape, size) for shape in shapes}) >= 2, size
    assert any(shape.T > 64 and shape.T % 2 for shape in shapes)
    assert any(shape.B > 2 and shape.B % 2 and len({shape.B, shape.Hk, shape.Hv}) == 3 for shape in shapes)
    assert {shape.Hv // shape.Hk for shape in shapes} == {1, 2, 3}
    assert {(shape.K > shape.V) - (shape.K < shape.V) for shape in shapes} == {-1, 0, 1}


def chunks_of_a_rank(case):
    return -(-case.problem.shape.T // case.ranks // case.problem.shape.chunk_size)


def test_a_single_device_runs_on_one_rank():
    assert {case.ranks for case in IN_GATE if not case.implementation.context_parallel} == {1}


def test_nothing_in_the_gate_is_beyond_our_own_implementations_but_an_order_that_some_refuse():
    beyond = [i for i in items([*IN_GATE, *cases(implementations.VARIANTS)]) if i.not_applicable()]
    assert {i.not_applicable() for i in beyond} == {"no load-balanced order"}
    assert {i.case.layout for i in beyond} == {ZIGZAG}
    assert len({i.case for i in beyond}) == len(CONTEXT_PARALLEL)


def test_full_is_the_product_and_contains_the_gate():
    full = {(case.name, case.ranks) for case in cases(implementations.ALL, FULL)}
    assert full > {(case.name, case.ranks) for case in IN_GATE}
    everywhere = (*map(over, MESHES), *LAYOUTS.values())
    splits = sum(layout.splits(shape) for shape in SHAPES.values() for layout in everywhere)
    each = len(DTYPES) * len(REGIMES) * len(("", *PACKINGS))
    assert len(full) == sum(each * (splits if i.context_parallel else len(SHAPES)) for i in implementations.ALL)


@pytest.mark.parametrize("implementation", CONTEXT_PARALLEL, ids=lambda i: i.name)
def test_context_parallelism_meets_every_layout(implementation):
    mine = cases([implementation])
    assert {case.layout for case in mine if case.layout.name} == {*SEVERAL_AXES, *BESIDE_OTHERS, MANUAL, ZIGZAG}
    for dtype in DTYPES:  # in every dtype on several axes, in an order that is not the mesh's
        assert MINOR_FIRST in {case.layout for case in mine if case.problem.dtype == dtype}


@pytest.mark.parametrize("implementation", VARIANTS_OVER_RANKS, ids=lambda i: i.name)
def test_a_variant_meets_every_dtype_on_ranks_of_several_chunks_and_of_no_power_of_two(implementation):
    mine = cases([implementation])
    for dtype in DTYPES:
        assert any(case.ranks >= 4 and chunks_of_a_rank(case) >= 3 for case in mine if case.problem.dtype == dtype)
    assert {case.ranks for case in mine} >= {4, 5}
    assert min(case.problem.shape.T // case.ranks for case in mine) == 1
    assert {MINOR_FIRST, MANUAL} <= {case.layout for case in mine}


def test_a_variant_for_one_device_meets_every_regime_in_what_it_claims():
    for implementation in set(implementations.VARIANTS) - set(VARIANTS_OVER_RANKS):
        mine = cases([implementation])
        assert {case.problem.dtype for case in mine} == set(implementation.arithmetic)
        for dtype in implementation.arithmetic:
            assert {case.problem.regime for case in mine if case.problem.dtype == dtype} == set(REGIMES)


def test_who_takes_load_balanced_tokens_meets_them_in_every_dtype_and_any_order():
    mine = cases([claiming(context_parallel=True, load_balanced=True)])
    found = {(case.problem.dtype, case.layout) for case in mine if case.layout.piece_order}
    assert found == {*((dtype, ZIGZAG) for dtype in DTYPES), ("f64", SHUFFLED), ("f64", ZIGZAG_MINOR_FIRST)}
    assert {case.problem.shape for case in mine} == set(SHAPES.values())  # and the whole gate


def test_what_is_packed_meets_documents_in_every_dtype_and_over_every_order_of_ranks():
    mine = cases([claiming(context_parallel=True, packed=True)], GATE)
    assert {(case.problem.packing, case.problem.dtype) for case in mine} == {
        (packing, dtype) for packing in ("", *PACKINGS) for dtype in DTYPES
    }
    packed = [case for case in mine if case.problem.packing]
    assert {case.layout for case in packed} == {over(4), over(5), over(8), MINOR_FIRST}
    assert {case.problem.packing for case in cases([implementations.VARIANTS[0]]) if case.problem.packing} == {
        *PACKINGS
    }
    of_one = next(case for case in packed if case.problem.packing == "at_edges" and case.problem.dtype == "bf16")
    assert of_one.name == "kernel-bf16-long_memory_packed_at_edges-ragged"
    assert of_one.compilation == "kernel-bf16-ragged-4ranks-packed"
    assert Item(of_one, 0, "o").not_applicable() is None
    (unpacked,) = (c for c in cases([claiming(context_parallel=True)], GATE) if c.name == of_one.name)
    assert Item(unpacked, 0, "o").not_applicable() == "no packed documents"


def test_rows_that_overlap_give_each_case_once():
    (implementation,) = (i for i in implementations.ALL if i.name == "sequential")
    assert len(cases([implementation], (*GATE, *GATE))) == len(cases([implementation], GATE))
    both = cases([implementation], GATE, seeds=(0, 1, 2))
    assert len(both) == 3 * len(cases([implementation], GATE))


def test_two_records_of_one_name_and_all_seeds_keep_apart():
    chosen = cases([claiming()], GATE[-1:], seeds=(5, 6))
    assert {case.problem.seed for case in chosen} == {5, 6}
    assert len({case.name for case in chosen}) == len(chosen)


# What is not applicable

UNGROUPED = Shape("ungrouped", B=1, T=8, Hk=2, Hv=2, K=4, V=5, chunk_size=4)
SQUARE = Shape("square", B=1, T=8, Hk=1, Hv=2, K=4, V=4, chunk_size=4)


@pytest.mark.parametrize(
    ("feature", "reason", "needs", "does_without"),
    [
        ("gradients", "no gradients", {"quantity": "dg"}, {"quantity": "final_state"}),
        ("grouped_heads", "no grouped heads", {"shape": SQUARE}, {"shape": UNGROUPED}),
        ("unequal_head_sizes", "no K != V", {"shape": UNGROUPED}, {"shape": SQUARE}),
        ("ragged", "no T that is not a multiple of the chunk", {"shape": RAGGED}, {"shape": ALIGNED}),
        ("ragged", "no T that is not a multiple of the chunk", {"shape": SHORT}, {"shape": UNGROUPED}),
        ("ragged", "no T that is not a multiple of the chunk", {"shape": SINGLE}, {"shape": SQUARE}),
        (
            "ragged",
            "no T that is not a multiple of the chunk",
            {"shape": SQUARE, "ranks": 4},
            {"shape": SQUARE, "ranks": 2},
        ),
        ("beta_above_one", "no beta above 1", {"regime": "beta_near_two"}, {"regime": "repeated_keys"}),
        ("several_axes", "no several axes", {"ranks": TWO_BY_FOUR}, {"ranks": 8}),
        ("other_axes", "no axes beside those of the ranks", {"ranks": BESIDE_BOTH}, {"ranks": TWO_BY_FOUR}),
        ("manual_axes", "no axes that are manual already", {"ranks": MANUAL}, {"ranks": BESIDE_BOTH}),
    ],
)
def test_a_feature_that_is_not_claimed_is_not_applicable_and_says_so(feature, reason, needs, does_without):
    limited, whole = claiming(supports=FEATURES - {feature}), claiming()
    assert item(limited, **needs).not_applicable() == reason
    assert item(whole, **needs).not_applicable() is None
    assert item(limited, **does_without).not_applicable() is None


def test_every_feature_has_a_reason():
    tested = {"gradients", "grouped_heads", "unequal_head_sizes", "ragged", "beta_above_one"}
    assert tested | {"several_axes", "other_axes", "manual_axes"} == FEATURES


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_without_gradients_the_outputs_are_still_asked_for(quantity):
    found = item(claiming(supports=FEATURES - {"gradients"}), quantity=quantity).not_applicable()
    assert found == (None if quantity in OUTPUTS else "no gradients")
    assert (quantity in GRADIENTS) == (quantity not in OUTPUTS)


def test_a_dtype_without_an_arithmetic_is_not_applicable():
    half = claiming(arithmetic={"bf16": "bf16"})
    assert item(half, dtype="f64").not_applicable() == "no arithmetic is claimed for f64"
    assert item(half, dtype="bf16").not_applicable() is None


def test_tokens_that_cannot_be_split_are_not_applicable():
    assert item(claiming(), shape=SINGLE, ranks=2).not_applicable() == "T = 1 cannot be split over 2 ranks"
    assert item(claiming(), shape=SHORT, ranks=8).not_applicable() is None


def test_every_dtype_meets_every_shape_on_one_device_and_on_several():
    """A kernel may be wrong for one pair of the two alone: bf16 at K = 128, say."""
    for implementation in implementations.ALL:
        met = {(c.problem.dtype, c.problem.shape.name) for c in cases([implementation])}
        assert met == {(dtype, shape) for dtype in implementation.arithmetic for shape in SHAPES}
