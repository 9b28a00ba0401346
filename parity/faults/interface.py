"""Faults at the edge of a call: what goes in is ignored, what comes back is another thing."""

from functools import partial

import jax.numpy as jnp

from parity.faults.around import Inputs, Setting, around
from parity.faults.fault import Fault

_interface = partial(Fault, kind="interface")


def _no_initial_state(x: Inputs, setting: Setting) -> Inputs:
    return x._replace(h0=jnp.zeros_like(x.h0))


FAULTS = (
    _interface(
        "initial_state_ignored",
        "the initial state is ignored",
        quantity="o",
        regimes=("long_memory",),
        wrap=around(inputs=_no_initial_state),
        source="tpu-inference #2408",
    ),
)
