"""Decoding with the GatedDeltaNet layer: one token a row, and states that lie in slots of a table.

Serving keeps the states of all sequences in a table, a slot for each, and hands a slot on when its sequence has ended.
It still holds what was left in it: whoever comes next starts from what the request says.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from implementations.arithmetic import accumulation_dtype, repeat_heads
from implementations.layer import ConvState, Parameters, gated_delta_net
from implementations.segments import check_fits
from implementations.sequential import token_step

# From the states of B rows, the output of their next tokens and the states behind these.
Run = Callable[[dict[str, Array], Array], tuple[Array, dict[str, Array], Array]]


def step(
    parameters: Parameters, x: Float[Array, "B D"], conv_state: ConvState, recurrent_state: Float[Array, "B Hv K V"]
) -> tuple[Float[Array, "B D"], dict[str, Array], Float[Array, "B Hv K V"]]:
    """`(y, conv_state, recurrent_state)` of one token a row: `gated_delta_net` for T = 1, without scan or chunk.

    Raises ValueError as `layer.check_inputs`, and on x that is not `[B, D]`.
    """
    if x.ndim != 2:
        raise ValueError(f"x must be [B, D], one token a row; got {x.shape}")
    y, conv, recurrent = gated_delta_net(parameters, x[:, None], conv_state, recurrent_state, rule=one_token)
    return y[:, 0], conv, recurrent


def one_token(
    q: Float[Array, "B 1 Hk K"],
    k: Float[Array, "B 1 Hk K"],
    v: Float[Array, "B 1 Hv V"],
    g: Float[Array, "B 1 Hv"],
    beta: Float[Array, "B 1 Hv"],
    initial_state: Float[Array, "B Hv K V"],
) -> tuple[Float[Array, "B 1 Hv V"], Float[Array, "B Hv K V"]]:
    """The rule for T = 1, as `contract` has it. Raises ValueError on more tokens."""
    if v.shape[1] != 1:
        raise ValueError(f"one_token is the rule of one token a row; got T = {v.shape[1]}: use a rule of a sequence")
    dtype = accumulation_dtype(v.dtype)
    q, k = (repeat_heads(x.astype(dtype), v.shape[2]) for x in (q, k))
    token = (q.shape[-1] ** -0.5 * q, k, v, g, beta)
    final_state, o = token_step(initial_state.astype(dtype), tuple(x[:, 0].astype(dtype) for x in token))
    return o[:, None].astype(v.dtype), final_state.astype(initial_state.dtype)


def in_slots(
    run: Run,
    conv_states: ConvState,
    recurrent_states: Float[Array, "slots Hv K V"],
    slots: Int[Array, " B"],
    has_initial_state: Bool[Array, " B"],
) -> tuple[Array, dict[str, Array], Float[Array, "slots Hv K V"]]:
    """`run` on the states of B slots: `(y, conv_states, recurrent_states)`, the tables with what it left in those.

    - `run(conv_state, recurrent_state) -> (y, conv_state, recurrent_state)`: a step, `partial(step, parameters, x)`, or
      a piece of a prefill, `partial(gated_delta_net, parameters, x, rule=...)`.
    - `conv_states`, `recurrent_states`: as `layer_sizes.states_like`, with slots for rows.
    - `has_initial_state`: where False the row starts from zeros, whatever its slot holds, NaN too.

    A row whose slot is outside the table, such as -1, is padding: it writes nothing, and what it reads is NaN unless it
    starts from zeros. No two rows may have one slot: what is left in it would be that of either.
    Raises ValueError where the arguments do not fit together, and on two rows with one slot where slots are not traced.
    """
    _check_slots(conv_states, recurrent_states, slots, has_initial_state)

    def read(table: Array) -> Array:
        held = table.at[slots].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        told = has_initial_state.reshape(-1, *[1] * (table.ndim - 1))
        return jnp.where(told, held, 0)  # not a product: NaN times 0 is NaN

    def write(table: Array, rows: Array) -> Array:
        return table.at[slots].set(rows, mode="drop", wrap_negative_indices=False)

    y, *states = run(*jax.tree.map(read, (dict(conv_states), recurrent_states)))
    written = jax.tree.map(write, (dict(conv_states), recurrent_states), tuple(states))
    return y, *written


def _check_slots(conv_states: ConvState, recurrent_states: Array, slots: Array, has_initial_state: Array) -> None:
    rows = {name: x.shape[0] for name, x in conv_states.items()} | {"recurrent": recurrent_states.shape[0]}
    if len(set(rows.values())) != 1:
        raise ValueError(f"every table must have as many slots; got {rows}")
    for name, x in (("slots", slots), ("has_initial_state", has_initial_state)):
        if not isinstance(x, jax.Array | np.ndarray):
            raise ValueError(f"{name} must be an array [B]; got {x!r}")
    if slots.ndim != 1 or not jnp.issubdtype(slots.dtype, jnp.integer):
        raise ValueError(f"slots must be integers [B]; got {slots.dtype} {slots.shape}")
    check_fits("slots", slots)
    if has_initial_state.shape != slots.shape or has_initial_state.dtype != bool:
        raise ValueError(
            f"has_initial_state must be bool {slots.shape}, one for each of slots; "
            f"got {has_initial_state.dtype} {has_initial_state.shape}"
        )
    if not isinstance(slots, jax.core.Tracer):
        inside = [slot for slot in np.asarray(slots).tolist() if 0 <= slot < recurrent_states.shape[0]]
        if len(set(inside)) != len(inside):
            raise ValueError(f"no two rows may have one slot; got {inside}")
