"""The causal convolution over ranks: whatever axes number them, beside axes that divide rows and channels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.context_parallel.conftest import mesh_of
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv

pytestmark = pytest.mark.usefixtures("x64")

B, D, W = 4, 6, 4
AXES = ("context",)
BOTH = pytest.mark.parametrize("convolution", [halo_conv, gspmd_conv])


def drawn(T, dtype=np.float64):
    """Three inputs, and cotangents of both outputs."""
    draw = np.random.default_rng(0)
    shapes = ((B, T, D), (D, W), (B, W - 1, D), (B, T, D), (B, W - 1, D))
    return [jnp.asarray(draw.normal(size=shape), dtype) for shape in shapes]


def outputs_and_gradients(convolution, arguments):
    @jax.jit
    def program(*arguments):
        outputs, pullback = jax.vjp(convolution, *arguments[:3])
        return *outputs, *pullback(arguments[3:])

    return program(*arguments)


@functools.cache
def on_one_device(T, dtype):
    return outputs_and_gradients(causal_conv, drawn(T, dtype))


def assert_as_on_one_device(found, T, dtype=np.float64, tolerance=1e-14):
    for a, b in zip(found, on_one_device(T, dtype), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(*(np.asarray(x, np.float64) for x in (a, b)), rtol=tolerance, atol=4 * tolerance)


def whole_and_the_same(x, mesh):
    """Every device of `mesh` holds all of x, the same bits."""
    copies = [np.asarray(part.data).tobytes() for part in x.addressable_shards]
    return x.sharding.is_fully_replicated and len(copies) == mesh.size and len(set(copies)) == 1


@BOTH
@pytest.mark.parametrize(
    ("sizes", "axes"),
    [
        ({"context": 5}, AXES),
        ({"a": 2, "b": 3}, ("b", "a")),
        ({"a": 2, "b": 2, "c": 2}, ("c", "a", "b")),
    ],
    ids=["one_axis", "two_axes", "three_axes"],
)
def test_ranks_are_numbered_over_the_axes_as_they_are_named(convolution, sizes, axes):
    """A halo from any other rank, or gradients sent to one, would be far off."""
    mesh = mesh_of(**sizes)
    found = outputs_and_gradients(functools.partial(convolution, mesh=mesh, axes=axes), drawn(120))
    assert_as_on_one_device(found, 120)
    y, final_state, dx, *of_all = found
    over_ranks = NamedSharding(mesh, PartitionSpec(None, axes))
    assert all(x.sharding.is_equivalent_to(over_ranks, 3) for x in (y, dx))
    assert all(whole_and_the_same(x, mesh) for x in (final_state, *of_all))


@BOTH
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (jnp.bfloat16, 2.0**-7)], ids=["f64", "bf16"])
def test_rows_and_channels_stay_divided_over_other_axes(convolution, dtype, tolerance):
    """In bf16 too, of which XLA for CPUs does not compile every sum over some axes only."""
    mesh, arguments = mesh_of(data=2, context=2, tensor=2), drawn(8, dtype)
    of_tokens, of_weight = PartitionSpec("data", "context", "tensor"), PartitionSpec("tensor")
    of_state = PartitionSpec("data", None, "tensor")
    specs = (of_tokens, of_weight, of_state, of_tokens, of_state)
    placed = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(arguments, specs, strict=True)]
    found = outputs_and_gradients(functools.partial(convolution, mesh=mesh, axes=AXES), placed)
    assert_as_on_one_device(found, 8, dtype, tolerance)
    for x, spec in zip(found, (of_tokens, of_state, of_tokens, of_weight, of_state), strict=True):
        assert x.sharding.is_equivalent_to(NamedSharding(mesh, spec), x.ndim)


@BOTH
def test_a_rank_may_hold_no_more_tokens_than_a_halo(convolution):
    over_ranks = functools.partial(convolution, mesh=mesh_of(context=4), axes=AXES)
    assert_as_on_one_device(outputs_and_gradients(over_ranks, drawn(4 * (W - 1))), 4 * (W - 1))


@BOTH
def test_one_rank_needs_no_halo(convolution):
    over_ranks = functools.partial(convolution, mesh=mesh_of(data=2, context=1), axes=AXES)
    assert_as_on_one_device(outputs_and_gradients(over_ranks, drawn(1)), 1)


@BOTH
def test_a_call_outside_of_jit(convolution):
    """On a mesh with a further axis, along which rows are divided."""
    arguments, mesh = drawn(8), mesh_of(data=2, context=2)
    x = jax.device_put(arguments[0], NamedSharding(mesh, PartitionSpec("data", "context")))
    y, _ = convolution(x, *arguments[1:3], mesh=mesh, axes=AXES)
    np.testing.assert_allclose(y, causal_conv(*arguments[:3])[0], rtol=0, atol=1e-13)


# What is refused


@BOTH
@pytest.mark.usefixtures("unchecked")
def test_a_call_checks_its_inputs_and_its_ranks(convolution):
    x, weight, state, *_ = drawn(8)
    with pytest.raises(ValueError, match="initial_state must hold the W - 1 tokens before x"):
        convolution(x, weight, state[:, 1:], mesh=mesh_of(context=2), axes=AXES)
    with pytest.raises(ValueError, match="axes must be a tuple"):
        convolution(x, weight, state, mesh=mesh_of(context=2), axes="context")
    with pytest.raises(ValueError, match="got T = 8, R = 3"):
        convolution(x, weight, state, mesh=mesh_of(context=3), axes=AXES)
    mesh = mesh_of(a=2, b=2)
    lies_otherwise = jax.device_put(drawn(16)[0], NamedSharding(mesh, PartitionSpec(None, ("b", "a"))))
    with pytest.raises(ValueError, match="the tokens of x are laid out over"):
        convolution(lies_otherwise, weight, state, mesh=mesh, axes=("a", "b"))


@BOTH
def test_ranks_that_hold_less_than_a_halo_are_refused(convolution):
    says = r"at least the W - 1 = 3 tokens .* got T / R = 8 / 4 = 2: use fewer ranks or longer sequences"
    with pytest.raises(ValueError, match=says):
        convolution(*drawn(8)[:3], mesh=mesh_of(context=4), axes=AXES)
