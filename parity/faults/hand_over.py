"""Faults of the hand-over between ranks: of the exchange of their affine maps, and of the order of ranks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from implementations.contract import Implementation
from parity.faults.around import TOKENS, Inputs, Outputs, Setting, Wrap, around
from parity.faults.edits import Edit
from parity.faults.fault import Fault

_exchange = partial(Edit, "implementations.context_parallel.exchange")
_two_phase = partial(Edit, "implementations.context_parallel.two_phase")
_hand_over = partial(Fault, kind="hand_over", ranks=4, first_bad_rank=1)

_GATHER = "pairs = gather(pair, axes)"
_SCAN = "final_state, entering = jax.lax.scan(next_rank, initial_state, pairs, reverse=reverse)"
_ENTERING = "jnp.take(entering, jax.lax.axis_index(axes), axis=0)"
_RETURN = f"return {_ENTERING}, final_state"

# The decay of a token that lets nothing through: its exp is 0 in f64.
FORGETS = -800.0


def _forget_at_the_start_of_each_rank(x: Inputs, setting: Setting) -> Inputs:
    token = jnp.arange(x.g.shape[1])
    first = (token % (x.g.shape[1] // setting.ranks) == 0) & (token > 0)
    return x._replace(g=jnp.where(first[:, None], FORGETS, x.g))


def _in_order(order_of: Callable[[int], Sequence[int]]) -> Wrap:
    """The sequence cut into pieces that are processed in another order, each result standing where it belongs."""

    def permute(x: Array, order: Sequence[int]) -> Array:
        batch, tokens, *rest = x.shape
        pieces = x.reshape(batch, len(order), tokens // len(order), *rest)
        return pieces[:, np.asarray(order)].reshape(x.shape)

    def inputs(x: Inputs, setting: Setting) -> Inputs:
        return x._replace(**{name: permute(getattr(x, name), order_of(setting.ranks)) for name in TOKENS})

    def outputs(x: Outputs, setting: Setting) -> Outputs:
        return x._replace(o=permute(x.o, np.argsort(order_of(setting.ranks)).tolist()))

    def wrap(implementation: Implementation) -> Implementation:
        # What is computed on the way stands at the place of other tokens.
        return replace(around(inputs, outputs)(implementation), stages=None)

    return wrap


def _two_axes_swapped(ranks: int) -> list[int]:
    return np.arange(ranks).reshape(2, -1).T.ravel().tolist()


def _zigzag(ranks: int) -> list[int]:
    """Rank r holds piece r and piece 2R - 1 - r."""
    return [piece for rank in range(ranks) for piece in (rank, 2 * ranks - 1 - rank)]


def _scan_edited(name: str, cause: str, scan: str, **where: object) -> Fault:
    where = {"regimes": ("long_memory", "zero_keys")} | where
    return _hand_over(name, cause, quantity="o", edits=(_exchange(_SCAN, scan),), **where)  # type: ignore[arg-type]


def _final_state(name: str, cause: str, expression: str, **where: object) -> Fault:
    """The states that enter the ranks are right, and so is `o`."""
    edit = _exchange(_RETURN, f"return {_ENTERING}, {expression}")
    return _hand_over(
        name,
        cause,
        quantity="final_state",
        regimes=("long_memory", "correlated_keys"),
        edits=(edit,),
        right=("o",),
        **({"first_bad_rank": 0} | where),  # type: ignore[arg-type]
    )


NO_EXCHANGE = _hand_over(
    "no_exchange",
    "no exchange between ranks: every rank but the first starts from zero",
    quantity="o",
    regimes=("long_memory", "zero_keys"),
    wrap=around(inputs=_forget_at_the_start_of_each_rank),
    source="maxtext #4348",
)

ENTERING_STATES = (
    NO_EXCHANGE,
    _hand_over(
        "no_exchange_and_own_final_states",
        "no exchange between ranks: every rank but the first starts from zero, and returns its own final state",
        quantity="o",
        regimes=("long_memory", "zero_keys"),
        edits=(
            _exchange(
                _RETURN,
                "own = jnp.where(jax.lax.axis_index(axes) == 0, initial_state, 0.0)\n    return own, apply(pair, own)",
            ),
        ),
        source="maxtext #4348",
    ),
    _scan_edited(
        "previous_b_only",
        "a rank starts from what the rank before it wrote, and forgets what had entered that one",
        "entering = jnp.concatenate([initial_state[None], pairs[1][:-1]])\n"
        "    final_state = apply((pairs[0][-1], pairs[1][-1]), entering[-1])",
        first_bad_rank=1,
    ),
    _scan_edited(
        "prefix_from_the_last_rank",
        "the prefix over ranks runs from the last rank to the first",
        _SCAN.replace("reverse=reverse", "reverse=not reverse"),
        first_bad_rank=0,
    ),
    _hand_over(
        "inclusive_prefix",
        "inclusive instead of exclusive prefix: a rank starts from the state that leaves it",
        quantity="o",
        regimes=("long_memory", "zero_keys"),
        edits=(_exchange("return apply(pair, h), h", "return apply(pair, h), apply(pair, h)"),),
        right=("final_state",),
        first_bad_rank=0,
    ),
    _scan_edited(
        "entering_states_one_rank_late",
        "a rank starts from the state that entered the rank before it",
        f"{_SCAN}\n    entering = jnp.concatenate([entering[:1], entering[:-1]])",
        right=("final_state",),
    ),
    _scan_edited(
        "first_rank_enters_the_final_state",
        "the ring is closed: the first rank starts from the last rank's final state",
        f"{_SCAN}\n    entering = entering.at[0].set(final_state)",
        first_bad_rank=0,
        last_bad_rank=0,
        right=("final_state",),
    ),
    _scan_edited(
        "initial_state_on_the_first_rank_only",
        "the initial state reaches the first rank's tokens and no other rank",
        f"{_SCAN.replace('initial_state', 'jnp.zeros_like(initial_state)')}\n"
        "    entering = entering.at[0].set(initial_state)",
        regimes=("long_memory",),
    ),
    _scan_edited(
        "initial_state_on_every_rank",
        "every rank adds the initial state to the state that enters it",
        f"{_SCAN}\n    entering = entering.at[1:].add(initial_state)",
        right=("final_state",),
    ),
    _scan_edited(
        "one_rank_starts_from_zero",
        "rank 2 starts from zero, and the ranks after it do not",
        f"{_SCAN}\n    entering = entering.at[2].set(0.0)",
        first_bad_rank=2,
        last_bad_rank=2,
        right=("final_state",),
    ),
    _scan_edited(
        "last_rank_starts_from_zero",
        "the loop over ranks ends one early: the last rank starts from zero",
        f"{_SCAN}\n    entering = entering.at[-1].set(0.0)",
        first_bad_rank=3,
        right=("final_state",),
    ),
    _scan_edited(
        "one_head_not_handed_over",
        "the last head's state is not handed over between ranks",
        f"{_SCAN}\n    entering = entering.at[1:, :, -1].set(0.0)",
        right=("final_state",),
    ),
    _scan_edited(
        "row_0_handed_to_all_rows",
        "the state handed over in batch row 0 enters every row",
        f"{_SCAN}\n    entering = entering.at[1:].set(entering[1:, :1])",
        right=("final_state",),
    ),
    _hand_over(
        "exchange_misses_a_round",
        "a log-depth exchange misses its last round: a rank knows the four ranks before it and no more",
        quantity="o",
        regimes=("long_memory", "zero_keys"),
        edits=(
            _exchange(
                _RETURN,
                "rank, state = jax.lax.axis_index(axes), initial_state\n"
                "    for j in range(4):\n"
                "        A, B = (jnp.take(x, rank - 4 + j, axis=0, mode='clip') for x in pairs)\n"
                "        state = jnp.where(rank - 4 + j >= 0, apply((A, B), state), state)\n"
                "    return state, final_state",
            ),
        ),
        ranks=8,
        first_bad_rank=5,
        right=("final_state",),
    ),
)

FINAL_STATES = (
    _final_state(
        "final_state_of_the_first_rank",
        "the final state is the first rank's",
        "apply((pairs[0][0], pairs[1][0]), initial_state)",
    ),
    _final_state(
        "final_state_of_each_rank",
        "every rank returns the state after its own tokens as the final state",
        f"apply(pair, {_ENTERING})",
        last_bad_rank=2,
    ),
    _final_state(
        "final_state_from_zero",
        "the final state is the last rank's as if it had started from zero",
        "pairs[1][-1]",
    ),
    _final_state(
        "final_state_entering_the_last_rank",
        "the final state is the state that entered the last rank",
        "entering[-1]",
    ),
    _final_state(
        "final_state_without_initial_state",
        "the final state lacks what the initial state leaves in it",
        "jax.lax.scan(next_rank, jnp.zeros_like(initial_state), pairs)[0]",
    ),
)

ORDER_OF_RANKS = (
    _hand_over(
        "mesh_axes_swapped",
        "the ranks of two mesh axes are taken in the swapped order, minor before major",
        quantity="o",
        regimes=("long_memory", "zero_keys"),
        wrap=_in_order(_two_axes_swapped),
        ranks=8,
    ),
    _hand_over(
        "zigzag_as_contiguous",
        "ranks hold zigzag pieces of the sequence, which are scanned as if they were contiguous",
        quantity="o",
        regimes=("long_memory", "zero_keys"),
        wrap=_in_order(_zigzag),
        first_bad_rank=0,
    ),
)

FAULTS = (*ENTERING_STATES, *FINAL_STATES, *ORDER_OF_RANKS)
