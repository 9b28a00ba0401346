"""What the tests of the implementations share. They know nothing of the oracles: inputs here are small and plain."""

from collections.abc import Callable, Iterator

import jax
import jaxtyping
import numpy as np
import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """float64 stays float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def inputs() -> Callable[..., tuple[jax.Array, ...]]:
    """`inputs(tokens=40)`: the six inputs for two rows and two key heads that serve two value heads each."""

    def make(tokens: int = 40, *, seed: int = 0) -> tuple[jax.Array, ...]:
        draw = np.random.default_rng(seed)
        q, k = draw.normal(size=(2, 2, tokens, 2, 4))
        return jax.device_put(
            (
                q / np.linalg.norm(q, axis=-1, keepdims=True),
                k / np.linalg.norm(k, axis=-1, keepdims=True),
                draw.normal(size=(2, tokens, 4, 3)),
                -draw.uniform(size=(2, tokens, 4)) * [0.01, 0.1, 0.5, 1],
                draw.uniform(size=(2, tokens, 4)),
                draw.normal(size=(2, 4, 4, 3)),
            )
        )

    return make
