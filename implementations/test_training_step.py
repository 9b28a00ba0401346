"""The step of AdamW: the same with its state divided, and in microbatches; its state does lie where it is said to."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from implementations.training_step import EveryDevice, Zero1, microbatches, start, step

PARAMETERS = {"weight": jnp.linspace(-1, 1, 12).reshape(3, 4), "scale": jnp.ones(3)}
BATCH = (jnp.sin(jnp.arange(24.0)).reshape(8, 3), jnp.cos(jnp.arange(32.0)).reshape(8, 4))


def loss(parameters, batch):
    x, wanted = batch
    return jnp.mean(((parameters["scale"] * x) @ parameters["weight"] - wanted) ** 2)


def two_steps(state, accumulation=1):
    optimizer = optax.adamw(1e-2)

    def steps(parameters):
        carry = parameters, start(optimizer, parameters, state)
        for _ in range(2):
            *carry, value = step(loss, optimizer, *carry, BATCH, accumulation=accumulation, state=state)
        return *carry, value

    return jax.jit(steps)(PARAMETERS)


def mesh():
    return Mesh(np.array(jax.devices()[:2]), ("data",), axis_types=(AxisType.Auto,))


@pytest.mark.parametrize("accumulation", [1, 2, 8])
@pytest.mark.parametrize("divided", [False, True])
def test_it_is_the_same_step(divided, accumulation):
    found = two_steps(Zero1(mesh()) if divided else EveryDevice(), accumulation)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5), found, two_steps(EveryDevice()))


def test_each_device_holds_its_part_of_the_moments_and_all_parameters():
    parameters, (adam, *_), _ = two_steps(Zero1(mesh()))
    for moments in (adam.mu, adam.nu):
        assert moments["weight"].sharding.spec == PartitionSpec(None, "data")
        assert moments["scale"].sharding.is_fully_replicated  # two devices do not divide three
    assert all(x.sharding.is_fully_replicated for x in jax.tree.leaves(parameters))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("accumulation", [0, -1, 2.0, None, "2", True])
def test_accumulation_is_a_positive_integer(accumulation):
    with pytest.raises(ValueError, match="accumulation must be a positive integer; got"):
        two_steps(EveryDevice(), accumulation)


def test_microbatches_have_rows_on_every_device_that_is_said_to_have_some():
    """Or they would be moved, which explicit axes do not do unasked."""
    explicit = Mesh(np.array(jax.devices()[:2]), ("data",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(jnp.zeros((4, 3)), NamedSharding(explicit, PartitionSpec("data")))
    assert microbatches(x, 2).shape == (2, 2, 3)
    with pytest.raises(ValueError, match=r"each of 4 microbatches must have rows on each of the 2 devices.*got 4 rows"):
        microbatches(x, 4)


def test_zero1_needs_an_axis_of_the_mesh_and_types_that_go_together():
    with pytest.raises(ValueError, match=r"axis must be one of the mesh, \('data',\); got 'dp'"):
        Zero1(mesh(), "dp")
    devices = np.array(jax.devices()[:4]).reshape(2, 2)
    mixed = Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Explicit))
    with pytest.raises(ValueError, match="'data' must be explicit where another axis is"):
        Zero1(mixed)
    Zero1(mixed, "model")


def test_rows_that_cannot_be_divided_are_refused():
    with pytest.raises(ValueError, match="multiple of the 3 accumulation steps; got 8"):
        two_steps(EveryDevice(), accumulation=3)
