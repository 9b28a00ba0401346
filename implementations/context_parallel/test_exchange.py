"""Which state enters which rank, on integers that float64 holds exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from implementations.context_parallel.exchange import EXCHANGES

pytestmark = pytest.mark.usefixtures("x64")
EVERY = pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)


def states_of(exchange, sizes, names, axes):
    """Rank r maps h to (r + 2) h + r; the states entering the ranks and each rank's final state, for h0 = 1."""

    def local(h0):
        rank = jax.lax.axis_index(axes).astype(h0.dtype)
        pair = (jnp.full((1, 1, 1, 1), rank + 2), jnp.full((1, 1, 1, 1), rank))
        return exchange(pair, h0, axes)

    mesh = jax.make_mesh(
        sizes, names, axis_types=(AxisType.Auto,) * len(sizes), devices=jax.devices()[: np.prod(sizes)]
    )
    over_ranks = PartitionSpec(axes)
    program = jax.shard_map(local, mesh=mesh, in_specs=PartitionSpec(), out_specs=over_ranks, check_vma=False)
    return [x.ravel().tolist() for x in jax.jit(program)(jnp.ones((1, 1, 1, 1)))]


def wanted(ranks):
    states = [1]
    for r in range(ranks):
        states.append((r + 2) * states[-1] + r)
    return [states[:-1], [states[-1]] * ranks]


@EVERY
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_a_state_enters_after_all_earlier_ranks(exchange, ranks):
    assert states_of(exchange, (ranks,), ("context",), ("context",)) == wanted(ranks)


@EVERY
@pytest.mark.parametrize("axes", [("outer", "inner"), ("inner", "outer")])
def test_the_first_axis_is_major_whatever_the_order_of_the_mesh(exchange, axes):
    assert states_of(exchange, (2, 4), ("outer", "inner"), axes) == wanted(8)


@EVERY
def test_ranks_of_another_axis_do_not_mix(exchange):
    assert states_of(exchange, (2, 3), ("data", "context"), ("context",)) == wanted(3)


@EVERY
def test_three_axes_are_one(exchange):
    assert states_of(exchange, (2, 2, 2), ("a", "b", "c"), ("c", "a", "b")) == wanted(8)


@EVERY
def test_matrices_compose_in_sequence_order(exchange):
    """Maps that do not commute, of several heads."""
    draw = np.random.default_rng(0)
    A, B = draw.integers(-3, 4, size=(5, 2, 3, 4, 4)), draw.integers(-3, 4, size=(5, 2, 3, 4, 6))
    h = draw.integers(-3, 4, size=(2, 3, 4, 6)).astype(float)

    def local(A, B, h0):
        return exchange((A[0], B[0]), h0, ("context",))

    mesh = jax.make_mesh((5,), ("context",), axis_types=(AxisType.Auto,), devices=jax.devices()[:5])
    over_ranks = PartitionSpec("context")
    program = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(over_ranks, over_ranks, PartitionSpec()),
        out_specs=over_ranks,
        check_vma=False,
    )
    entering, final_state = jax.jit(program)(A.astype(float), B.astype(float), h)
    states = [h]
    for rank in range(5):
        states.append(A[rank] @ states[-1] + B[rank])
    assert np.array_equal(np.split(np.asarray(entering), 5), states[:-1])
    assert all(np.array_equal(copy, states[-1]) for copy in np.split(np.asarray(final_state), 5))
