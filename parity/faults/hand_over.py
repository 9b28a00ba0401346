"""Faults of the hand-over between ranks: of the affine pair, of the exchange, and of the order of ranks."""

from functools import partial

import jax.numpy as jnp

from parity.faults.around import Inputs, Setting, around
from parity.faults.edits import Edit
from parity.faults.fault import Fault

_affine = partial(Edit, "implementations.context_parallel.affine")
_exchange = partial(Edit, "implementations.context_parallel.exchange")
_between_ranks = partial(Fault, kind="hand_over", ranks=4, first_bad_rank=1)

# The decay of a token that lets nothing through: exp of it is 0 in f64.
FORGETS = -800.0


def _forget_at_the_start_of_each_rank(x: Inputs, setting: Setting) -> Inputs:
    token = jnp.arange(x.g.shape[1])
    first = (token % (x.g.shape[1] // setting.ranks) == 0) & (token > 0)
    return x._replace(g=jnp.where(first[:, None], FORGETS, x.g))


NO_EXCHANGE = _between_ranks(
    "no_exchange",
    "no exchange between ranks: every rank but the first starts from zero",
    quantity="o",
    regimes=("long_memory", "zero_keys"),
    wrap=around(inputs=_forget_at_the_start_of_each_rank),
    source="maxtext #4348",
)
TRANSITION_TRANSPOSED = _between_ranks(
    "transition_transposed",
    "the ranks' transitions A are transposed",
    quantity="o",
    regimes=("correlated_keys", "beta_near_two"),
    edits=(
        _exchange(
            "pairs = jax.lax.all_gather(pair, axes)",
            "pairs = jax.lax.all_gather((jnp.swapaxes(pair[0], -1, -2), pair[1]), axes)",
        ),
    ),
)
TRANSITION_SIGN = _between_ranks(
    "transition_sign",
    "the sign of K~^T w in a chunk's transition A is flipped",
    quantity="o",
    regimes=("long_memory",),
    edits=(_affine("* identity - einsum", "* identity + einsum"),),
)

FAULTS = (NO_EXCHANGE, TRANSITION_TRANSPOSED, TRANSITION_SIGN)
