"""On data in any order of its pieces, results and gradients are the sequential rule's, in that order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.context_parallel.affine import fold
from implementations.context_parallel.conftest import assert_close, mesh_of, outputs_and_gradients
from implementations.context_parallel.load_balanced import load_balanced
from implementations.context_parallel.pieces import zigzag
from implementations.context_parallel.three_phase import local_pass, three_phase
from implementations.context_parallel.two_phase import two_phase
from implementations.sequential import sequential

pytestmark = pytest.mark.usefixtures("x64")

TOKENS = 40
ORDERS = {
    "zigzag": (4, zigzag(4)),
    "three_a_rank": (4, (7, 2, 11, 0, 1, 5, 10, 9, 3, 4, 8, 6)),
    "one_a_rank": (4, (2, 0, 3, 1)),
    "all_on_one": (1, (3, 0, 2, 1)),
}


def lying(x, order):
    """Along T, the pieces of `order`."""
    batch, tokens, *rest = x.shape
    return x.reshape(batch, len(order), tokens // len(order), *rest)[:, np.array(order)].reshape(x.shape)


def in_sequence(function, order):
    """`function` of tokens that lie in `order`, as a function of tokens in the order of the sequence."""

    def call(*inputs):
        *tokens, h0 = inputs
        o, final_state = function(*(lying(x, order) for x in tokens), h0)
        return lying(o, np.argsort(order)), final_state

    return call


@pytest.mark.parametrize("map_of_rank", [fold, local_pass])
@pytest.mark.parametrize(("ranks", "order"), ORDERS.values(), ids=ORDERS)
def test_results_and_gradients_are_those_of_one_token_after_another(inputs, ranks, order, map_of_rank):
    call = functools.partial(
        load_balanced,
        chunk_size=3,
        mesh=mesh_of(context=ranks),
        axes=("context",),
        piece_order=order,
        map_of_rank=map_of_rank,
    )
    x = inputs(48)
    assert_close(outputs_and_gradients(in_sequence(call, order), x), outputs_and_gradients(sequential, x))


def test_without_an_order_it_is_that_of_the_sequence(inputs):
    call = functools.partial(load_balanced, chunk_size=3, mesh=mesh_of(context=4), axes=("context",))
    assert_close(outputs_and_gradients(call, inputs(TOKENS)), outputs_and_gradients(sequential, inputs(TOKENS)))


def test_zigzag_gives_each_rank_an_early_and_a_late_piece():
    assert zigzag(1) == (0, 1)
    assert zigzag(4) == (0, 7, 1, 6, 2, 5, 3, 4)


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ((0, 1, 2), "as many for each of the 4 ranks; got \\(0, 1, 2\\)"),
        ((0, 1, 2, 2), "each of the pieces 0, 1, ... once.*got \\(0, 1, 2, 2\\)"),
        ((1, 2, 3, 4), "each of the pieces 0, 1, ... once.*got \\(1, 2, 3, 4\\)"),
        ((), "each of the pieces 0, 1, ... once"),
        (zigzag(8), "T must be a multiple of the number of pieces, each holds T / 16 tokens; got T = 40"),
    ],
)
def test_an_order_that_cannot_be_is_refused(inputs, order, says):
    with pytest.raises(ValueError, match=says):
        load_balanced(*inputs(TOKENS), mesh=mesh_of(context=4), axes=("context",), piece_order=order)


@pytest.mark.parametrize("scheme", [two_phase, three_phase, load_balanced])
@pytest.mark.parametrize("order", [(0.0, 1.0, 2.0, 3.0), (None, 0, 1, 2), 5, np.arange(4).reshape(2, 2)], ids=str)
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_order_is_refused_before_anything_is_traced(inputs, scheme, order):
    with pytest.raises(ValueError, match="piece_order must be a sequence of integers; got"):
        scheme(*inputs(TOKENS), mesh=mesh_of(context=4), axes=("context",), piece_order=order)


@pytest.mark.usefixtures("unchecked")
def test_an_order_may_be_an_array(inputs):
    keywords = {"mesh": mesh_of(context=4), "axes": ("context",)}
    found, wanted = (load_balanced(*inputs(TOKENS), piece_order=x, **keywords) for x in (np.arange(4), (0, 1, 2, 3)))
    assert all(jnp.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("scheme", [two_phase, three_phase])
def test_a_scheme_for_the_order_of_the_sequence_refuses_another_and_says_why(inputs, scheme):
    keywords = {"mesh": mesh_of(context=4), "axes": ("context",)}
    says = "each must hold one stretch.*the result would be wrong.*use `load_balanced`.*got piece_order=\\(0, 7, 1, 6"
    with pytest.raises(ValueError, match=says):
        scheme(*inputs(TOKENS), piece_order=zigzag(4), **keywords)
    with pytest.raises(ValueError, match="each must hold one stretch"):
        scheme(*inputs(TOKENS), piece_order=(0, 0, 1, 1), **keywords)  # no order at all
    given = jax.jit(functools.partial(scheme, piece_order=(0, 1, 2, 3), **keywords))(*inputs(TOKENS))
    left_out = jax.jit(functools.partial(scheme, **keywords))(*inputs(TOKENS))
    assert all(jnp.array_equal(a, b) for a, b in zip(given, left_out, strict=True))
