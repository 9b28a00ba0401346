"""Faults at the edge of a call: of states and layouts, and of single tokens, heads and rows."""

from collections.abc import Callable

import jax.numpy as jnp

from parity.faults.around import Inputs, Outputs, Setting, Wrap, around
from parity.faults.fault import Fault
from parity.shapes import ALIGNED, UNEVEN

WEAK = ("long_memory", "typical")


def _wrong(name: str, cause: str, wrap: Wrap, *regimes: str, quantity: str = "o", **rest: object) -> Fault:
    return Fault(name, cause, "interface", quantity, regimes or WEAK, wrap=wrap, **rest)  # type: ignore[arg-type]


def _taken(change: Callable[[Inputs], Inputs]) -> Wrap:
    def inputs(x: Inputs, setting: Setting) -> Inputs:
        return change(x)

    return around(inputs)


def _returned(change: Callable[[Outputs], Outputs]) -> Wrap:
    def outputs(x: Outputs, setting: Setting) -> Outputs:
        return change(x)

    return around(outputs=outputs)


def _rank_of_each_token(x: Outputs, setting: Setting) -> jnp.ndarray:
    return jnp.arange(x.o.shape[1]) // (x.o.shape[1] // setting.ranks)


def _a_rank_off(x: Outputs, setting: Setting) -> Outputs:
    """Rank 2 alone, by one part in a thousand."""
    return x._replace(
        o=x.o * jnp.where(_rank_of_each_token(x, setting) == 2, 1.001, 1.0)[:, None, None].astype(x.o.dtype)
    )


def _heads_and_tokens_by_reshape(x: Outputs) -> Outputs:
    return x._replace(o=jnp.swapaxes(x.o, 1, 2).reshape(x.o.shape))


def _drop_a_token(x: Inputs) -> Inputs:
    token = x.v.shape[1] // 2
    return x._replace(beta=x.beta.at[:, token].set(0.0), g=x.g.at[:, token].set(0.0))


def _whole_eights(tokens: int) -> jnp.ndarray:
    """Whether each token is one of a whole eight, `[1, T, 1]`."""
    return (jnp.arange(tokens) < tokens - tokens % 8)[None, :, None]


def _read_in_eights(x: Inputs, setting: Setting) -> Inputs:
    is_read = _whole_eights(x.v.shape[1])
    return x._replace(g=jnp.where(is_read, x.g, 0), beta=jnp.where(is_read, x.beta, 0))


def _written_in_eights(x: Outputs, setting: Setting) -> Outputs:
    return x._replace(o=jnp.where(_whole_eights(x.o.shape[1])[..., None], x.o, 0))


def _two_key_heads(x: Inputs) -> Inputs:
    heads = jnp.arange(x.k.shape[2]) * 2 // x.k.shape[2]
    return x._replace(q=x.q[:, :, heads], k=x.k[:, :, heads])


SIZES = (
    _wrong(
        "tokens_in_eights",
        "tokens after the last multiple of eight are left out",
        around(_read_in_eights, _written_in_eights),
        shape=UNEVEN,
    ),
    _wrong("two_key_heads", "there are taken to be two key heads", _taken(_two_key_heads), shape=UNEVEN),
    _wrong(
        "two_rows_of_states",
        "batch rows from the third on start from the initial state of the second",
        _taken(lambda x: x._replace(h0=x.h0[jnp.minimum(jnp.arange(x.h0.shape[0]), 1)])),
        shape=UNEVEN,
    ),
)

STATES = (
    _wrong(
        "initial_state_ignored",
        "the initial state is ignored",
        _taken(lambda x: x._replace(h0=jnp.zeros_like(x.h0))),
        source="tpu-inference #2408",
    ),
    _wrong(
        "initial_state_of_row_0",
        "batch row 0's initial state enters every row",
        _taken(lambda x: x._replace(h0=jnp.broadcast_to(x.h0[:1], x.h0.shape))),
    ),
    _wrong(
        "initial_state_transposed",
        "the initial state is read as [V, K]",
        _taken(lambda x: x._replace(h0=jnp.swapaxes(x.h0, -1, -2))),
        shape=ALIGNED,
    ),
    _wrong(
        "final_state_transposed",
        "the final state is returned as [V, K]",
        _returned(lambda x: x._replace(final_state=jnp.swapaxes(x.final_state, -1, -2))),
        quantity="final_state",
        shape=ALIGNED,
        right=("o",),
        source="sparkinfer #615",
    ),
    _wrong(
        "final_state_rows_swapped",
        "the final states of the batch rows are swapped",
        _returned(lambda x: x._replace(final_state=x.final_state[::-1])),
        quantity="final_state",
        right=("o",),
    ),
    _wrong(
        "final_state_a_token_late",
        "the final state has decayed once more, as if for a token to come",
        _returned(lambda x: x._replace(final_state=0.99 * x.final_state)),
        quantity="final_state",
        right=("o",),
    ),
)

TOKENS_HEADS_ROWS = (
    _wrong(
        "outputs_in_head_order",
        "o is laid out with heads before tokens",
        _returned(_heads_and_tokens_by_reshape),
        right=("final_state",),
    ),
    _wrong(
        "one_token_dropped",
        "one token in the middle of the sequence is dropped",
        _taken(_drop_a_token),
        quantity="final_state",
    ),
    _wrong(
        "one_output_missing",
        "the output of the very last token stays zero",
        _returned(lambda x: x._replace(o=x.o.at[:, -1].set(0.0))),
        right=("final_state",),
    ),
    _wrong(
        "last_head_missing",
        "the last head's output stays zero",
        _returned(lambda x: x._replace(o=x.o.at[:, :, -1].set(0.0))),
        right=("final_state",),
    ),
    _wrong(
        "last_row_missing",
        "the last batch row's output stays zero",
        _returned(lambda x: x._replace(o=x.o.at[-1].set(0.0))),
        right=("final_state",),
    ),
    _wrong(
        "one_rank_off",
        "the outputs of rank 2 alone are a thousandth too large",
        around(outputs=_a_rank_off),
        ranks=4,
        first_bad_rank=2,
        last_bad_rank=2,
        right=("final_state",),
    ),
)

FAULTS = (*SIZES, *STATES, *TOKENS_HEADS_ROWS)
