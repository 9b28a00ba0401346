"""Folding from the last chunk is folding from the first, forward and backward, whatever the number of chunks."""

import functools

import jax
import numpy as np
import pytest

from implementations.chunked import prepare
from implementations.context_parallel.affine import fold
from implementations.context_parallel.conftest import assert_close, mesh_of, outputs_and_gradients
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.two_phase import two_phase
from implementations.sequential import sequential

pytestmark = pytest.mark.usefixtures("x64")

TOKENS = 40


@pytest.mark.parametrize("chunk_size", [3, 16, 40], ids=["14_chunks", "3_chunks", "1_chunk"])
def test_the_map_and_its_gradients_are_those_of_the_fold(inputs, chunk_size):
    factors = jax.jit(functools.partial(prepare, scale=None, chunk_size=chunk_size))(*inputs(TOKENS)[:5])
    draw = np.random.default_rng(2)
    bars = draw.normal(size=(2, 4, 4, 4)), draw.normal(size=(2, 4, 4, 3))

    def map_and_gradients(map_of_rank):
        @jax.jit
        def program(factors):
            pair, pullback = jax.vjp(map_of_rank, factors)
            return *pair, *pullback(bars)[0]

        return program(factors)

    for found, wanted in zip(map_and_gradients(reverse_fold), map_and_gradients(fold), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


def test_a_scheme_may_fold_so(inputs):
    """On five ranks eight tokens each, in chunks of 3, 3 and 2."""
    x = inputs(TOKENS)
    keywords = {"chunk_size": 3, "mesh": mesh_of(context=5), "axes": ("context",), "map_of_rank": reverse_fold}
    over_ranks = functools.partial(two_phase, **keywords)
    assert_close(outputs_and_gradients(over_ranks, x), outputs_and_gradients(sequential, x))
