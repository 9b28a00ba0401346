"""A product in passes has the error of as many bits as its parts hold, and no other."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from parity.arithmetic.passes import dot_in_passes, passes

MATRICES = {"dimension_numbers": (((1,), (0,)), ((), ()))}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def relative_error(count, size):
    a, b = normal(64, size), normal(size, 64, seed=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    found = np.asarray(dot_in_passes(jnp.asarray(a), jnp.asarray(b), count, **MATRICES), np.float64)
    return np.sqrt(np.mean((found - exact) ** 2) / np.mean(scale**2))


@pytest.mark.parametrize(("count", "least", "most"), [(1, 2**-14, 2**-11), (3, 2**-22, 2**-18), (6, 0, 2**-24)])
def test_the_error_is_that_of_the_parts_that_are_kept(count, least, most):
    """Relative to |a| |b|, of 128 products whose errors are independent: below the worst one by about sqrt(128)."""
    assert least <= relative_error(count, 128) <= most


@pytest.mark.parametrize(("count", "bits"), [(1, 8), (3, 16), (6, 24)])
def test_what_the_parts_hold_is_exact(count, bits):
    """One product of numbers of that many bits with 1: nothing is left out, and nothing rounded."""
    a = np.float32([[2.0**bits - 1, -(2.0 ** (bits - 1)) - 1, 2.0 ** (bits - 2) + 1]]).T
    one = np.ones((1, 1), np.float32)
    assert np.array_equal(dot_in_passes(jnp.asarray(a), jnp.asarray(one), count, **MATRICES), a)


def test_one_bit_more_than_the_parts_hold_is_lost():
    a, one = np.float32([[2.0**8 + 1]]), np.ones((1, 1), np.float32)
    assert not np.array_equal(dot_in_passes(jnp.asarray(a), jnp.asarray(one), 1, **MATRICES), a)
    a = np.float32([[2.0**18 + 2.0**9 + 1]])
    assert not np.array_equal(dot_in_passes(jnp.asarray(a), jnp.asarray(one), 3, **MATRICES), a)


def test_batches_and_transposed_operands_are_those_of_dot_general():
    a, b = normal(3, 5, 4), normal(3, 6, 4, seed=1)
    dimensions = {"dimension_numbers": (((2,), (2,)), ((0,), (0,)))}
    found = dot_in_passes(jnp.asarray(a), jnp.asarray(b), 6, **dimensions)
    np.testing.assert_allclose(found, np.einsum("nik,njk->nij", a, b), rtol=0, atol=1e-5)


PRECISION = jax.lax.Precision


@pytest.mark.parametrize(
    ("policy", "precision", "count"),
    [
        ("identity", PRECISION.DEFAULT, None),
        ("as_written", None, 1),
        ("as_written", PRECISION.DEFAULT, 1),
        ("as_written", (PRECISION.HIGH, PRECISION.HIGH), 3),
        ("as_written", (PRECISION.HIGHEST, PRECISION.HIGHEST), 6),
        ("default", PRECISION.HIGHEST, 1),
        ("high", None, 3),
        ("highest", PRECISION.DEFAULT, 6),
    ],
)
def test_how_many_passes(policy, precision, count):
    assert passes(policy, precision) == count


def test_what_is_not_known_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users call it
    with pytest.raises(ValueError, match="policy must be"):
        passes("bf16", None)
    with pytest.raises(ValueError, match="are not known"):
        passes("as_written", jax.lax.DotAlgorithmPreset.F32_F32_F32)
