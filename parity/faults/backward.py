"""Faults in gradients alone: the outputs are right."""

from functools import partial

import jax.numpy as jnp

from parity.faults.around import Gradients, Inputs, Outputs, Pullback, Setting, around_gradients
from parity.faults.fault import Fault

_backward = partial(Fault, kind="backward")


def _no_final_state_cotangent(pullback: Pullback, x: Inputs, cotangents: Outputs, setting: Setting) -> Gradients:
    return pullback(x, cotangents._replace(final_state=jnp.zeros_like(cotangents.final_state)))


FAULTS = (
    _backward(
        "final_state_cotangent_dropped",
        "the cotangent of the final state is dropped",
        quantity="dh0",
        regimes=("long_memory",),
        right=("o", "final_state", "dq"),
        wrap=around_gradients(_no_final_state_cotangent),
    ),
)
