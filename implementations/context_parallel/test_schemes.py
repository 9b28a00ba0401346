"""Every scheme with every exchange is the sequential rule, forward and backward."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.chunked import prepare
from implementations.context_parallel.affine import fold
from implementations.context_parallel.conftest import assert_close, mesh_of, outputs_and_gradients
from implementations.context_parallel.exchange import EXCHANGES
from implementations.context_parallel.least_memory import least_memory
from implementations.context_parallel.least_work import least_work
from implementations.context_parallel.three_phase import local_pass, three_phase
from implementations.context_parallel.two_phase import two_phase
from implementations.pallas.inversion import inversion
from implementations.pallas.scan import walk
from implementations.sequential import sequential

pytestmark = pytest.mark.usefixtures("x64")

TOKENS = 40  # on five ranks eight tokens each, in chunks of 3, 3 and 2
AXES = ("context",)


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize("scheme", [two_phase, three_phase, least_work])
def test_results_and_gradients_are_those_of_one_token_after_another(inputs, scheme, exchange):
    x = inputs(TOKENS)
    over_ranks = functools.partial(scheme, chunk_size=3, mesh=mesh_of(context=5), axes=AXES, exchange=exchange)
    assert_close(outputs_and_gradients(over_ranks, x), outputs_and_gradients(sequential, x))


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_every_rank_holds_the_same_final_state(inputs, exchange):
    over_ranks = functools.partial(two_phase, chunk_size=2, mesh=mesh_of(context=8), axes=AXES, exchange=exchange)
    _, final_state = jax.jit(over_ranks)(*inputs(TOKENS))
    assert len({np.asarray(part.data).tobytes() for part in final_state.addressable_shards}) == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_least_work_needs_no_rank_between(inputs, ranks):
    over_ranks = functools.partial(least_work, chunk_size=3, mesh=mesh_of(context=ranks), axes=AXES)
    assert_close(outputs_and_gradients(over_ranks, inputs(TOKENS)), outputs_and_gradients(sequential, inputs(TOKENS)))


@pytest.mark.parametrize("chunks_a_segment", [1, 2, 100])
def test_the_least_memory_in_segments_of_any_number_of_chunks(inputs, chunks_a_segment):
    """Ranks of eight tokens in chunks of 3, 3 and 2: the last segment is full, cut or all there is."""
    segments = {"chunk_size": 3, "chunks_a_segment": chunks_a_segment}
    over_ranks = functools.partial(least_memory, mesh=mesh_of(context=5), axes=AXES, **segments)
    assert_close(outputs_and_gradients(over_ranks, inputs(TOKENS)), outputs_and_gradients(sequential, inputs(TOKENS)))


def test_the_least_memory_walks_as_it_is_told(inputs):
    over_ranks = functools.partial(
        least_memory, chunk_size=3, chunks_a_segment=2, mesh=mesh_of(context=5), axes=AXES, invert=inversion, walk=walk
    )
    assert_close(outputs_and_gradients(over_ranks, inputs(TOKENS)), outputs_and_gradients(sequential, inputs(TOKENS)))


@pytest.mark.parametrize("chunks_a_segment", [0, -1, True])
def test_a_segment_is_a_number_of_chunks(inputs, chunks_a_segment):
    told = {"chunk_size": 3, "chunks_a_segment": chunks_a_segment, "mesh": mesh_of(context=5), "axes": AXES}
    with pytest.raises(ValueError, match=r"chunks_a_segment must be a positive integer; got"):
        least_memory(*inputs(TOKENS), **told)


@pytest.mark.parametrize("scheme", [two_phase, least_work, least_memory])
def test_gradients_of_ranks_are_summed_in_f32_where_states_are_bf16(inputs, scheme):
    """Over some axes of a mesh, where XLA for CPUs aborts on a sum in bf16."""
    x = [y.astype("bfloat16") for y in inputs(TOKENS)]
    over_ranks = functools.partial(scheme, chunk_size=3, mesh=mesh_of(data=2, context=4), axes=AXES)

    def loss(call, h0):
        o, final_state = call(*x[:5], h0)
        return jnp.sum(o.astype("float32") ** 2) + jnp.sum(final_state.astype("float32"))

    assert [y.dtype for y in jax.eval_shape(over_ranks, *x)] == ["bfloat16", "bfloat16"]
    found, wanted = (jax.grad(functools.partial(loss, call))(x[5]) for call in (over_ranks, sequential))
    assert found.dtype == "bfloat16"
    off = np.abs(np.asarray(found, dtype=np.float64) - np.asarray(wanted, dtype=np.float64))
    assert off.max() <= 2.0**-8 * np.abs(np.asarray(wanted, dtype=np.float64)).max()


@pytest.mark.parametrize("scheme", [two_phase, least_work, least_memory])
def test_a_mesh_with_other_axes_needs_no_jit(inputs, scheme):
    over_ranks = functools.partial(scheme, chunk_size=3, mesh=mesh_of(data=2, context=4), axes=AXES)
    assert_close(over_ranks(*inputs(TOKENS)), sequential(*inputs(TOKENS)))


def test_a_local_pass_is_the_fold_of_its_chunks(inputs):
    factors = jax.jit(functools.partial(prepare, scale=None, chunk_size=16))(*inputs(TOKENS)[:5])
    for found, wanted in zip(local_pass(factors), fold(factors), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)


def test_the_gradient_of_a_local_pass_is_that_of_the_fold(inputs):
    factors = jax.jit(functools.partial(prepare, scale=None, chunk_size=16))(*inputs(TOKENS)[:5])
    draw = np.random.default_rng(2)
    bars = tuple(draw.normal(size=x.shape) for x in fold(factors))

    def gradients(map_of_rank):
        return jax.jit(lambda factors: jax.vjp(map_of_rank, factors)[1](bars)[0])(factors)

    for found, wanted in zip(gradients(local_pass), gradients(fold), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
