"""Which axes number the ranks, and who sends to whom."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from implementations.context_parallel.conftest import mesh_of
from implementations.context_parallel.ranks import check_layout, check_ranks, permute
from implementations.context_parallel.two_phase import two_phase

TOKENS = 40
AXES = ("context",)


@pytest.mark.parametrize(
    "axes", [("other",), ("context", "other"), ("context", "context"), (), "context", ["context"], None]
)
@pytest.mark.usefixtures("unchecked")
def test_axes_that_are_no_distinct_axes_of_the_mesh_are_refused(axes):
    with pytest.raises(ValueError, match="axes must be a tuple of distinct axes of the mesh, \\('context',\\); got"):
        check_ranks(TOKENS, mesh_of(context=4), axes)


@pytest.mark.parametrize(("tokens", "axes", "ranks"), [(41, AXES, 4), (2, AXES, 4), (12, ("data", "context"), 8)])
def test_tokens_that_cannot_be_split_evenly_are_refused(tokens, axes, ranks):
    with pytest.raises(ValueError, match=f"T must be a multiple of the number of ranks.*got T = {tokens}, R = {ranks}"):
        check_ranks(tokens, mesh_of(data=2, context=4), axes)


def test_ranks_that_divide_the_tokens_are_accepted():
    check_ranks(4, mesh_of(data=2, context=4), AXES)
    check_ranks(16, mesh_of(data=2, context=4), ("context", "data"))


@pytest.mark.parametrize("axes", [("a", "b", "c"), ("c", "a", "b"), ("b", "c"), ("c", "b"), ("a",)])
def test_ranks_are_numbered_over_the_axes_as_they_are_named(axes):
    """Each sends its number two ranks on; the first two get nothing."""
    mesh = mesh_of(a=2, b=2, c=2)
    ranks = 2 ** len(axes)

    def two_on(x):
        return permute(1 + jax.lax.axis_index(axes)[None], axes, [(r, r + 2) for r in range(ranks - 2)])

    over_ranks = PartitionSpec(axes)
    program = jax.shard_map(two_on, mesh=mesh, in_specs=over_ranks, out_specs=over_ranks, check_vma=False)
    assert jax.jit(program)(np.zeros(ranks)).tolist() == [0, 0, *range(1, ranks - 1)]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_tokens_that_lie_in_another_order_are_refused_before_anything_is_computed(kind):
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(kind,) * 2, devices=jax.devices()[:4])

    def laid_out(*axes):
        return jax.device_put(np.zeros((2, 8, 3)), NamedSharding(mesh, PartitionSpec(None, axes)))

    right, wrong = laid_out("a", "b"), laid_out("b", "a")
    check_layout(("a", "b"), q=right, k=np.zeros((2, 8, 3)), v=laid_out("a"), g=laid_out())
    says = r"the tokens of k are laid out over \('b', 'a'\), and the ranks are numbered over \('a', 'b'\)"
    with pytest.raises(ValueError, match=says):
        check_layout(("a", "b"), q=right, k=wrong)
    if kind == AxisType.Explicit:  # where the layout is part of the type it is known while it is traced
        with pytest.raises(ValueError, match=says):
            jax.jit(lambda q, k: check_layout(("a", "b"), q=q, k=k))(right, wrong)


def test_an_axis_of_one_orders_nothing():
    mesh = mesh_of(a=1, b=4)
    lies = jax.device_put(np.zeros((2, 8, 3)), NamedSharding(mesh, PartitionSpec(None, ("b", "a"))))
    check_layout(("a", "b"), q=lies)


def test_a_scheme_refuses_them(inputs):
    mesh = mesh_of(a=2, b=2)
    *sequences, h0 = inputs(TOKENS)
    wrong = [jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, ("b", "a")))) for x in sequences]
    with pytest.raises(ValueError, match="each rank would hold the tokens of another; use one order"):
        two_phase(*wrong, h0, mesh=mesh, axes=("a", "b"))
