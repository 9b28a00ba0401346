"""Two-phase context parallelism: any number of ranks, any mesh, no token seen before its time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from implementations.context_parallel.conftest import assert_close, mesh_of, outputs_and_gradients
from implementations.context_parallel.exchange import all_gather_prefix
from implementations.context_parallel.two_phase import stages, two_phase
from implementations.contract import STAGES
from implementations.sequential import sequential

pytestmark = pytest.mark.usefixtures("x64")

TOKENS = 40  # on 8 ranks five tokens each: chunks of 2, 2 and 1
AXES = ("context",)


@functools.cache
def forward(mesh, axes=AXES, exchange=all_gather_prefix):
    """One program for all tests that ask for it."""
    return jax.jit(functools.partial(two_phase, chunk_size=2, mesh=mesh, axes=axes, exchange=exchange))


@pytest.fixture
def on_8_ranks():
    return forward(mesh_of(context=8))


def test_results_do_not_depend_on_the_number_of_ranks(inputs):
    x = inputs(TOKENS)
    wanted = jax.jit(sequential)(*x)
    for ranks in (1, 2, 4, 8):
        assert_close(forward(mesh_of(context=ranks))(*x), wanted)


def test_gradients_are_those_of_one_rank_after_another(inputs):
    x = inputs(TOKENS)
    assert_close(outputs_and_gradients(forward(mesh_of(context=8)), x), outputs_and_gradients(sequential, x))


def test_every_rank_holds_the_same_final_state(on_8_ranks, inputs):
    _, final_state = on_8_ranks(*inputs(TOKENS))
    copies = [np.asarray(part.data).tobytes() for part in final_state.addressable_shards]
    assert len(copies) == 8
    assert len(set(copies)) == 1


def test_each_rank_holds_its_own_outputs(on_8_ranks, inputs):
    o, final_state = on_8_ranks(*inputs(TOKENS))
    mesh = mesh_of(context=8)
    assert o.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec(None, AXES)), o.ndim)
    assert final_state.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec()), final_state.ndim)


@pytest.mark.parametrize("axes", [("outer", "inner"), ("inner", "outer")])
def test_two_axes_are_one_with_the_first_major(on_8_ranks, inputs, axes):
    """Whatever the order of the mesh: the tuple orders the ranks, in the PartitionSpec and in the collectives alike."""
    x = inputs(TOKENS)
    found = forward(mesh_of(outer=2, inner=4), axes)(*x)
    for a, b in zip(found, on_8_ranks(*x), strict=True):
        assert np.array_equal(a, b)


def test_two_by_two_is_four(inputs):
    x = inputs(TOKENS)
    found, wanted = forward(mesh_of(outer=2, inner=2), ("outer", "inner"))(*x), forward(mesh_of(context=4))(*x)
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a, b)


def test_an_axis_that_is_not_named_replicates(on_8_ranks, inputs):
    x = inputs(TOKENS)
    found = forward(mesh_of(data=2, context=4))(*x)
    for a, b in zip(found, on_8_ranks(*x), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14 * np.max(np.abs(b)))


@pytest.mark.parametrize("rank", [1, 4, 7])
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
def test_no_rank_sees_a_later_token(on_8_ranks, inputs, rank, name):
    x = dict(zip(("q", "k", "v", "g", "beta", "initial_state"), inputs(TOKENS), strict=True))
    edited = x | {name: x[name].at[:, 5 * rank + 1].multiply(1.5)}
    (o, final_state), (edited_o, edited_final_state) = on_8_ranks(*x.values()), on_8_ranks(*edited.values())
    token = 5 * rank + 1
    assert np.array_equal(edited_o[:, : 5 * rank], o[:, : 5 * rank])
    np.testing.assert_allclose(edited_o[:, 5 * rank : token], o[:, 5 * rank : token], rtol=1e-12, atol=1e-14)
    assert np.all(edited_o[:, token] != o[:, token])
    # What a rank writes every later rank must see; what it reads, none.
    later = slice(5 * (rank + 1), TOKENS)
    assert np.any(edited_final_state != final_state) == (name != "q")
    if rank < 7:
        assert np.any(edited_o[:, later] != o[:, later]) == (name != "q")


def test_the_exchange_can_be_replaced(inputs):
    """Without the hand-over every rank starts from zero: all but rank 0 of h0 = 0 are wrong, the fault of thread 1."""

    def no_hand_over(pair, initial_state, axes):
        return 0 * initial_state, all_gather_prefix(pair, initial_state, axes)[1]

    *sequences, h0 = inputs(TOKENS)
    o, final_state = forward(mesh_of(context=2), exchange=no_hand_over)(*sequences, 0 * h0)
    wanted, wanted_final_state = jax.jit(sequential)(*sequences, 0 * h0)
    np.testing.assert_allclose(o[:, :20], wanted[:, :20], rtol=0, atol=1e-13)
    np.testing.assert_allclose(final_state, wanted_final_state, rtol=0, atol=1e-13)
    assert not np.allclose(o[:, 20:], wanted[:, 20:], rtol=0, atol=1e-2)


# What is refused


@pytest.mark.usefixtures("unchecked")
def test_a_call_checks_its_inputs_and_its_ranks(inputs):
    *sequences, h0 = inputs(TOKENS)
    with pytest.raises(ValueError, match="initial_state must have shape"):
        two_phase(*sequences, jnp.swapaxes(h0, 2, 3), mesh=mesh_of(context=2), axes=AXES)
    with pytest.raises(ValueError, match="axes must be a tuple"):
        two_phase(*sequences, h0, mesh=mesh_of(context=2), axes="context")
    with pytest.raises(ValueError, match="R = 3"):
        two_phase(*sequences, h0, mesh=mesh_of(context=3), axes=AXES)


# Stages


def test_stages_are_what_it_computes_on_the_way(inputs):
    """On four ranks, ten tokens each in chunks of 4, 4 and 2; without a mesh, the same tokens in one rank."""
    x, mesh = inputs(TOKENS), mesh_of(context=4)
    found = jax.jit(functools.partial(stages, chunk_size=4, mesh=mesh, axes=AXES))(*x)
    for name, axes in STAGES.items():
        sizes = {"R": 4, "N": 3, "B": 2, "Hv": 4, "C": 4, "K": 4, "V": 3}
        assert found[name].shape == tuple(sizes[axis] for axis in axes.split())
    ends = [sequential(*(y[:, : 10 * rank] for y in x[:5]), x[5])[1] if rank else x[5] for rank in range(4)]
    for rank, state in enumerate(ends):
        np.testing.assert_allclose(found["entering_rank"][rank], state, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found["entering_chunk"][rank, 0], state, rtol=0, atol=1e-13)
    leaving = found["A"] @ found["entering_rank"] + found["B"]
    np.testing.assert_allclose(leaving[:-1], found["entering_rank"][1:], rtol=0, atol=1e-13)
    np.testing.assert_allclose(leaving[-1], sequential(*x)[1], rtol=0, atol=1e-13)


def test_stages_show_the_exchange_that_was_made(inputs):
    def from_zero(pair, initial_state, axes):
        entering, final_state = all_gather_prefix(pair, initial_state, axes)
        return 0 * entering, final_state

    keywords = {"chunk_size": 4, "mesh": mesh_of(context=4), "axes": AXES, "exchange": from_zero}
    found = jax.jit(functools.partial(stages, **keywords))(*inputs(TOKENS))
    assert not found["entering_rank"].any()
    assert found["A"].any()
