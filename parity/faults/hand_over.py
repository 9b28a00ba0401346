"""Faults of the hand-over between ranks: each is `two_phase` with another exchange."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from implementations.context_parallel.affine import Affine, apply
from implementations.context_parallel.exchange import all_gather_prefix
from implementations.context_parallel.two_phase import Exchange, two_phase
from implementations.contract import Implementation


def _no_exchange(pair: Affine, initial_state: Array, axes: tuple[str, ...]) -> tuple[Array, Array]:
    """Every rank but the first starts from zero (thread 4: a fused path that returns before the composition)."""
    is_first = jax.lax.axis_index(axes) == 0
    entering = jnp.where(is_first, initial_state, jnp.zeros_like(initial_state))
    return entering, apply(pair, entering)


def _previous_b_only(pair: Affine, initial_state: Array, axes: tuple[str, ...]) -> tuple[Array, Array]:
    """A rank starts from what the one before it wrote, and forgets all that had entered that one."""
    A, B = pair
    return all_gather_prefix((jnp.zeros_like(A), B), initial_state, axes)


def _transition_transposed(pair: Affine, initial_state: Array, axes: tuple[str, ...]) -> tuple[Array, Array]:
    A, B = pair
    return all_gather_prefix((jnp.swapaxes(A, -1, -2), B), initial_state, axes)


def _fault(name: str, exchange: Exchange) -> Implementation:
    return Implementation(name, partial(two_phase, exchange=exchange), context_parallel=True)


NO_EXCHANGE = _fault("no_exchange", _no_exchange)
PREVIOUS_B_ONLY = _fault("previous_b_only", _previous_b_only)
TRANSITION_TRANSPOSED = _fault("transition_transposed", _transition_transposed)
