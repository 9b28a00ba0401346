"""Faults at the edge of a call: what goes in is ignored, what comes back is cut off, nothing is computed."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from implementations.chunked import chunked
from implementations.contract import Implementation


def _initial_state_ignored(*inputs: Array, **keywords: Any) -> tuple[Array, Array]:
    q, k, v, g, beta, initial_state = inputs
    return chunked(q, k, v, g, beta, jnp.zeros_like(initial_state), **keywords)


def _final_state_cotangent_dropped(*inputs: Array, **keywords: Any) -> tuple[Array, Array]:
    """Both outputs are right; a loss on the final state does not reach the inputs."""
    o, final_state = chunked(*inputs, **keywords)
    return o, jax.lax.stop_gradient(final_state)


def _zeros(*inputs: Array, **keywords: Any) -> tuple[Array, Array]:
    """Nothing at all, in the right shapes, and differentiable."""
    return 0 * inputs[2], 0 * inputs[5]


INITIAL_STATE_IGNORED = Implementation("initial_state_ignored", _initial_state_ignored)
FINAL_STATE_COTANGENT_DROPPED = Implementation("final_state_cotangent_dropped", _final_state_cotangent_dropped)
ZEROS = Implementation("zeros", _zeros)
