"""Which state enters which rank, on integers that float64 holds exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from implementations.context_parallel.exchange import all_gather_prefix

pytestmark = pytest.mark.usefixtures("x64")


def states_of(sizes, names, axes):
    """Rank r maps h to (r + 2) h + r; the states entering the ranks and each rank's final state, for h0 = 1."""

    def local(h0):
        rank = jax.lax.axis_index(axes).astype(h0.dtype)
        pair = (jnp.full((1, 1, 1, 1), rank + 2), jnp.full((1, 1, 1, 1), rank))
        return all_gather_prefix(pair, h0, axes)

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


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_a_state_enters_after_all_earlier_ranks(ranks):
    assert states_of((ranks,), ("context",), ("context",)) == wanted(ranks)


@pytest.mark.parametrize("axes", [("outer", "inner"), ("inner", "outer")])
def test_the_first_axis_is_major_whatever_the_order_of_the_mesh(axes):
    assert states_of((2, 4), ("outer", "inner"), axes) == wanted(8)


def test_ranks_of_another_axis_do_not_mix():
    assert states_of((2, 3), ("data", "context"), ("context",)) == wanted(3)
