"""What the tests of the schemes share."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh


def mesh_of(**sizes: int) -> Mesh:
    """A mesh of the first devices, with these axes."""
    shape = tuple(sizes.values())
    devices = jax.devices()[: np.prod(shape)]
    return jax.make_mesh(shape, tuple(sizes), axis_types=(AxisType.Auto,) * len(shape), devices=devices)


def outputs_and_gradients(function: Callable[..., Any], x: Sequence[Any]) -> list[np.ndarray]:
    """Both outputs and all six gradients, for cotangents of both."""
    draw = np.random.default_rng(1)
    cotangents = jax.device_put((draw.normal(size=x[2].shape), draw.normal(size=x[5].shape)))

    @jax.jit
    def program(*x: Any) -> tuple[Any, ...]:
        outputs, pullback = jax.vjp(function, *x)
        return *outputs, *pullback(cotangents)

    return [np.asarray(y) for y in program(*x)]


def assert_close(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """To 1e-14 of the largest element of each array."""
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14 * np.max(np.abs(b)))
