"""Faults of the rule itself: of one token's step in `sequential`, or of what a call makes of its inputs."""

from functools import partial

import jax.numpy as jnp

from parity.faults.around import Inputs, Setting, around
from parity.faults.edits import Edit
from parity.faults.fault import Fault

_sequential = partial(Edit, "implementations.sequential")
_rule = partial(Fault, kind="rule")

_DECAY = "    h = jnp.exp(g)[..., None, None] * h\n"
_ERROR = '    e = beta[..., None] * (v - einsum("bhk,bhkv->bhv", k, h))\n'


def _tile_heads(x: Inputs, setting: Setting) -> Inputs:
    group = x.v.shape[2] // x.q.shape[2]
    return x._replace(q=jnp.tile(x.q, (1, 1, group, 1)), k=jnp.tile(x.k, (1, 1, group, 1)))


FAULTS = (
    _rule(
        "error_before_decay",
        "the error is taken against the state that has not decayed yet",
        quantity="o",
        regimes=("typical",),
        edits=(_sequential(_DECAY + _ERROR, _ERROR + _DECAY),),
    ),
    _rule(
        "value_heads_tiled",
        "value heads are tiled over key heads: head i reads key head i mod Hk",
        quantity="o",
        regimes=("long_memory",),
        wrap=around(inputs=_tile_heads),
        source="SlimServe #12",
    ),
)
