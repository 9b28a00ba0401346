"""Mistakes that one axis hides, or the order of the sequence: the gate's other layouts show each."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from implementations.context_parallel.affine import apply
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import Implementation
from parity.faults.edits import Edit, edited
from parity.layouts import (
    AROUND_TENSOR,
    BESIDE_BOTH,
    FOUR_BY_TWO,
    MANUAL,
    MINOR_FIRST,
    ONE_BY_EIGHT,
    SHUFFLED,
    THREE_TURNED,
    TWO_BY_FOUR,
    ZIGZAG,
    ZIGZAG_MINOR_FIRST,
    Layout,
    over,
)
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge

_PACKAGE = "implementations.context_parallel"
_exchange = partial(Edit, f"{_PACKAGE}.exchange")
_ranks = partial(Edit, f"{_PACKAGE}.ranks")
_load_balanced = partial(Edit, f"{_PACKAGE}.load_balanced")

_GIVEN = "    tokens, state = PartitionSpec(None, axes), PartitionSpec()"
_RETURNED = "of_tokens, of_the_state = PartitionSpec(None, axes), PartitionSpec()"
_MINE = "jax.lax.axis_index(axes), axis=0)"

MISTAKES: dict[str, tuple[tuple[Edit, ...], tuple[Layout, ...], tuple[Layout, ...]]] = {
    # the edits, where the mistake is seen, and where it cannot be
    "tokens are split over the axes in the other order": (
        (
            _ranks(_GIVEN, _GIVEN.replace("axes)", "axes[::-1])")),
            _ranks(_RETURNED, _RETURNED.replace("axes)", "axes[::-1])")),
        ),
        (TWO_BY_FOUR, THREE_TURNED, MINOR_FIRST),
        (over(8), ONE_BY_EIGHT),
    ),
    "maps are gathered with the first axis minor": (
        (_exchange("gather(pair, axes)", "gather(pair, axes[::-1])"),),
        (TWO_BY_FOUR, FOUR_BY_TWO, AROUND_TENSOR),
        (over(8), ONE_BY_EIGHT),
    ),
    "a rank is numbered by the first axis alone": (
        (_exchange(_MINE, _MINE.replace("axes)", "axes[0])")),),
        (TWO_BY_FOUR, ONE_BY_EIGHT),
        (over(8), BESIDE_BOTH),
    ),
    "maps are gathered over the last axis alone": (
        (
            _exchange("gather(pair, axes)", "gather(pair, axes[-1:])"),
            _exchange(_MINE, _MINE.replace("axes)", "axes[-1])")),
        ),
        (TWO_BY_FOUR, FOUR_BY_TWO),
        (over(8), ONE_BY_EIGHT),
    ),
}

ORDERS: dict[str, tuple[Edit, ...]] = {
    "pieces are combined as they lie": (
        _load_balanced("[place]\n", "\n"),
        _load_balanced("jnp.asarray(order)", "jnp.arange(len(order))"),
    ),
    "the order is taken for its inverse": (_load_balanced("np.argsort(order)", "np.asarray(order)"),),
    "the second piece of a rank starts from where the first ends": (
        _load_balanced("x[mine]", "x[mine[:1] + jnp.arange(len(mine))]"),
    ),
}


def passes(call, layout, **claims):
    implementation = Implementation("planted", call, {"f64": "f64"}, context_parallel=True, **claims)
    return judge(Case(implementation, Problem("long_memory", RAGGED, "f64"), layout)).passes


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_among_several_axes_is_seen(mistake):
    edits, seen, hidden = MISTAKES[mistake]
    call = edited(f"{_PACKAGE}.two_phase:two_phase", *edits)
    assert [layout.name for layout in seen if passes(call, layout)] == []
    assert [layout.name for layout in hidden if not passes(call, layout)] == []


OF_MANUAL_AXES = {
    "the cotangents of the final state are of one rank alone": (
        "            dfinal_state = jax.lax.psum(dfinal_state, axes)\n",
        "            pass\n",
    ),
    "every rank adds the gradient of the initial state": ("jnp.where(jax.lax.axis_index(axes) == 0, dh0, 0)", "dh0"),
}


@pytest.mark.parametrize("mistake", OF_MANUAL_AXES)
def test_a_mistake_where_axes_are_manual_already_is_seen(mistake):
    """In gradients that a scheme brings itself: what ranks hold alike is added up by the caller's `shard_map`."""
    edit = Edit(f"{_PACKAGE}.least_memory", *OF_MANUAL_AXES[mistake])
    call = partial(edited(f"{_PACKAGE}.least_memory:least_memory", edit), chunks_a_segment=2)
    assert not passes(call, MANUAL)
    assert passes(call, over(4))


def test_a_permutation_in_the_order_of_the_mesh_is_seen():
    """jax 0.10 sends to other ranks in silence, and jax 0.12 refuses."""
    naive = _ranks(
        "return jax.lax.ppermute(x, in_mesh, [(number(source), number(destination)) for source, destination in hops])",
        "return jax.lax.ppermute(x, axes, list(hops))",
    )
    call = partial(two_phase, exchange=edited(f"{_PACKAGE}.exchange:ring", naive))
    assert not passes(call, MINOR_FIRST)
    assert passes(call, TWO_BY_FOUR)


def gathered_in_the_order_of_the_mesh(pair, initial_state, axes, *, turned):
    """`all_gather_prefix` by hand: what is gathered as the mesh has it is turned to the order of `axes`."""
    sizes = {name: jax.lax.axis_size(name) for name in jax.sharding.get_abstract_mesh().axis_names}
    in_mesh = tuple(name for name in sizes if name in axes)

    def of_all(x):
        of_axes = jax.lax.all_gather(x, in_mesh).reshape(*(sizes[name] for name in in_mesh), *x.shape)
        rest = range(len(axes), of_axes.ndim)
        return of_axes.transpose(*turned(in_mesh, axes), *rest).reshape(-1, *x.shape)

    final_state, entering = jax.lax.scan(lambda h, each: (apply(each, h), h), initial_state, tuple(map(of_all, pair)))
    return jnp.take(entering, jax.lax.axis_index(axes), axis=0), final_state


def to_axes(in_mesh, axes):
    return tuple(in_mesh.index(axis) for axis in axes)


def its_inverse(in_mesh, axes):
    return tuple(axes.index(axis) for axis in in_mesh)


def test_an_order_of_axes_that_is_taken_for_its_inverse_is_seen():
    """Of two axes it is its inverse, and of axes in the mesh's own order."""
    right, wrong = (
        partial(two_phase, exchange=partial(gathered_in_the_order_of_the_mesh, turned=turned))
        for turned in (to_axes, its_inverse)
    )
    assert passes(right, THREE_TURNED)
    assert not passes(wrong, THREE_TURNED)
    assert passes(wrong, MINOR_FIRST)


def test_ranks_of_pieces_that_are_numbered_in_another_order_are_seen():
    """Pieces on one axis hide it, and ranks of one stretch never meet it."""
    reversed_axes = _load_balanced("*x.shape[1:]), axes)", "*x.shape[1:]), axes[::-1])")
    call = edited(f"{_PACKAGE}.load_balanced:load_balanced", reversed_axes)
    assert not passes(call, ZIGZAG_MINOR_FIRST, load_balanced=True)
    assert passes(call, ZIGZAG, load_balanced=True)
    assert passes(call, SHUFFLED, load_balanced=True)


@pytest.mark.parametrize("mistake", ORDERS)
def test_a_mistake_in_the_order_of_pieces_is_seen(mistake):
    call = edited(f"{_PACKAGE}.load_balanced:load_balanced", *ORDERS[mistake])
    assert not passes(call, SHUFFLED, load_balanced=True)
    assert passes(call, over(4), load_balanced=True)


def test_zigzag_is_its_own_inverse_nowhere():
    """Or an order taken for its inverse would be right there; it is caught by `SHUFFLED` whatever `ZIGZAG` is."""
    assert [ZIGZAG.piece_order[i] for i in ZIGZAG.piece_order] != list(range(8))
