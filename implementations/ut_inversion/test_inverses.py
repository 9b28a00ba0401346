"""Each way to invert I + S agrees with substitution, forward and backward, and reads S below the diagonal alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.pallas.inversion import inversion
from implementations.ut_inversion.ladder import ladder
from implementations.ut_inversion.powers import neumann, newton
from implementations.ut_inversion.products import bf16x3, full, one_bf16_pass
from implementations.ut_inversion.substitution import substitution

INVERSES = {
    "ladder": ladder,
    "pallas": functools.partial(inversion, product=full),
    "pallas in tiles of 3": functools.partial(inversion, product=full, tile=3),
    "neumann": neumann,
    "newton": newton,
}
each_inverse = pytest.mark.parametrize("inverse", INVERSES.values(), ids=INVERSES)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def well_conditioned(*shape):
    return np.tril(drawn(*shape), -1) / shape[-1]


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@each_inverse
@pytest.mark.parametrize("size", [1, 2, 3, 16, 48])
def test_it_is_the_inverse_of_every_matrix_of_a_batch(inverse, size):
    S = well_conditioned(2, 5, size, size)
    found = np.asarray(inverse(jnp.asarray(S)))
    np.testing.assert_allclose(found, np.linalg.inv(np.eye(size) + S), atol=1e-14)
    assert not np.triu(found, 1).any()


@each_inverse
def test_what_stands_on_or_above_the_diagonal_is_not_read(inverse):
    S = well_conditioned(3, 16, 16)
    unread = np.triu(np.full((16, 16), np.nan))
    found, wanted = (np.asarray(inverse(jnp.asarray(x))) for x in (np.where(np.isnan(unread), np.nan, S), S))
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("inverse", [ladder, functools.partial(inversion, product=full)], ids=["ladder", "pallas"])
def test_the_gradient_is_that_of_substitution_and_strictly_lower(inverse):
    S, dT = jnp.asarray(well_conditioned(2, 3, 20, 20)), jnp.asarray(drawn(2, 3, 20, 20, seed=1))
    found, wanted = (np.asarray(jax.vjp(f, S)[1](dT)[0]) for f in (inverse, substitution))
    np.testing.assert_allclose(found, np.tril(wanted, -1), atol=1e-13)


@pytest.mark.parametrize(("product", "low", "high"), [(bf16x3, 2.0**-21, 2.0**-16), (one_bf16_pass, 2.0**-11, 2.0**-8)])
@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["at once", "compiled"])
def test_products_are_as_good_as_their_operands(product, low, high, how):
    """Compiled too: XLA may not see through the splitting of an operand, or three passes would be one, or six."""
    a, b = (np.float32(drawn(4, 32, 32, seed=seed)) for seed in (2, 3))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.asarray(how(product)(jnp.asarray(a), jnp.asarray(b)), np.float64) - exact
    assert low < np.linalg.norm(error) / np.linalg.norm(exact) < high


@pytest.mark.parametrize("product", [bf16x3, one_bf16_pass])
def test_of_f64_there_is_one_way_to_multiply(product):
    a, b = (jnp.asarray(drawn(2, 8, 8, seed=seed)) for seed in (2, 3))
    assert np.array_equal(product(a, b), full(a, b))
