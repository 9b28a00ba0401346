"""Affine maps of the state: in which order they compose, and that a chunk's map is what the chunk does."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.chunked import chunk_step, prepare
from implementations.context_parallel.affine import apply, compose, fold, of_chunk

pytestmark = pytest.mark.usefixtures("x64")

K, V = 4, 3
CLOSE = {"rtol": 0, "atol": 1e-13}
PREPARE = jax.jit(functools.partial(prepare, scale=None, chunk_size=16))


def pairs(count, *leading):
    draw = np.random.default_rng(0)
    return [
        (jnp.array(draw.normal(size=(*leading, K, K)) / 2), jnp.array(draw.normal(size=(*leading, K, V))))
        for _ in range(count)
    ]


@pytest.fixture
def factors(inputs):
    """Three chunks of 16, 16 and 8 tokens, for two rows and four heads."""
    return PREPARE(*inputs(40)[:5])


def chunk(factors, n):
    return jax.tree.map(lambda x: x[n], factors)


def assert_close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, **CLOSE)


# compose and apply


def test_the_later_map_is_the_first_argument():
    """On integers, by hand: h -> 2 h + 1, and after it h -> 3 h + 5, is 6 h + 8; the other way round 6 h + 11."""
    double, triple = (jnp.array([[2.0]]), jnp.array([[1.0]])), (jnp.array([[3.0]]), jnp.array([[5.0]]))
    assert [x.item() for x in compose(triple, double)] == [6, 8]
    assert [x.item() for x in compose(double, triple)] == [6, 11]
    assert apply(compose(triple, double), jnp.array([[10.0]])).item() == 68


def test_composing_is_applying_one_after_the_other():
    (earlier, later), h = pairs(2, 2, 5), jnp.array(np.random.default_rng(1).normal(size=(2, 5, K, V)))
    one_by_one = apply(later, apply(earlier, h))
    np.testing.assert_allclose(apply(compose(later, earlier), h), one_by_one, **CLOSE)
    assert not np.allclose(apply(compose(earlier, later), h), one_by_one)


def test_composing_is_associative():
    a, b, c = pairs(3, 2)
    assert_close(compose(compose(a, b), c), compose(a, compose(b, c)))


def test_the_identity_changes_nothing():
    (pair,) = pairs(1)
    identity = (jnp.eye(K), jnp.zeros((K, V)))
    for composed in (compose(pair, identity), compose(identity, pair)):
        assert all(np.array_equal(x, y) for x, y in zip(composed, pair, strict=True))


# of_chunk and fold


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_map_of_a_chunk_is_its_step(factors, inputs, n):
    h = inputs()[5]
    stepped, _ = chunk_step(h, chunk(factors, n))
    np.testing.assert_allclose(apply(of_chunk(chunk(factors, n)), h), stepped, **CLOSE)


def test_folding_is_composing_in_sequence_order(factors):
    first, second, third = (of_chunk(chunk(factors, n)) for n in range(3))
    folded = fold(factors)
    assert_close(folded, compose(third, compose(second, first)))
    assert not np.allclose(folded[0], compose(first, compose(second, third))[0])


def test_the_fold_takes_a_state_where_the_scan_takes_it(factors, inputs):
    h = inputs()[5]
    final_state, _ = jax.lax.scan(chunk_step, h, factors)
    np.testing.assert_allclose(apply(fold(factors), h), final_state, **CLOSE)


def test_one_chunk_folds_to_its_own_map(factors):
    assert_close(fold(jax.tree.map(lambda x: x[:1], factors)), of_chunk(chunk(factors, 0)))


def test_the_gradient_of_the_fold_is_that_of_composing_one_by_one(factors):
    draw = np.random.default_rng(2)
    A_bar, B_bar = (jnp.array(draw.normal(size=x.shape)) for x in fold(factors))

    def folded(factors):
        A, B = fold(factors)
        return jnp.sum(A_bar * A) + jnp.sum(B_bar * B)

    def one_by_one(factors):
        first, second, third = (of_chunk(chunk(factors, n)) for n in range(3))
        A, B = compose(third, compose(second, first))
        return jnp.sum(A_bar * A) + jnp.sum(B_bar * B)

    found, wanted = (jax.jit(jax.grad(f))(factors) for f in (folded, one_by_one))
    assert_close(found, wanted)
    assert np.all(np.asarray(found.q_decayed) == 0)  # what is read leaves no trace in the map
