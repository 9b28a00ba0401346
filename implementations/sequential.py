"""The rule token by token, as written: a `lax.scan` over T. Slow, and the easiest to believe.

Its backward keeps one state a token, so do not use it for long sequences.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from implementations.arithmetic import accumulation_dtype, einsum, repeat_heads
from implementations.contract import Implementation, check_inputs
from implementations.segments import starts

State = Float[Array, "B H K V"]
Token = tuple[Array, ...]


def token_step(h: State, token: Token) -> tuple[State, Float[Array, "B H V"]]:
    """One token `(q, k, v, g, beta)`, each `[B, H, ...]`, q scaled: the next state, and the read after the write."""
    q, k, v, g, beta = token
    h = jnp.exp(g)[..., None, None] * h
    e = beta[..., None] * (v - einsum("bhk,bhkv->bhv", k, h))
    h = h + einsum("bhk,bhv->bhkv", k, e)
    return h, einsum("bhkv,bhk->bhv", h, q)


def packed_token_step(h: State, token: tuple[Bool[Array, " B"], Token]) -> tuple[State, Float[Array, "B H V"]]:
    """`(is the first of a further document, token)`: that one finds no state, whatever there was."""
    is_first, of_token = token
    return token_step(jnp.where(is_first[:, None, None, None], 0, h), of_token)


def sequential(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None = None,
    chunk_size: int = 64,
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract; `chunk_size` is checked and not used.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    dtype = accumulation_dtype(v.dtype)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    # Widen before repeating, so that the gradients of a group of heads are summed in the wide dtype too.
    wide_q, wide_k, wide_v, wide_g, wide_beta = (x.astype(dtype) for x in (q, k, v, g, beta))
    tokens = (scale * repeat_heads(wide_q, v.shape[2]), repeat_heads(wide_k, v.shape[2]), wide_v, wide_g, wide_beta)
    over_time = tuple(jnp.moveaxis(x, 1, 0) for x in tokens)
    h0 = initial_state.astype(dtype)
    first = starts(segment_ids)
    if first is None:
        final_state, o = jax.lax.scan(token_step, h0, over_time)
    else:
        final_state, o = jax.lax.scan(packed_token_step, h0, (first.T, over_time))
    return jnp.moveaxis(o, 0, 1).astype(v.dtype), final_state.astype(initial_state.dtype)


SEQUENTIAL = Implementation("sequential", sequential, packed=True)
