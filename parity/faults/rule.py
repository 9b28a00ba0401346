"""Faults of the rule itself: each is `sequential` or `chunked` with one line changed."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from implementations.arithmetic import einsum
from implementations.chunked import Factors, chunk_step, chunked
from implementations.contract import Implementation
from implementations.sequential import Token, sequential


def _update_with_u(h: Array, chunk: Factors) -> tuple[Array, Array]:
    """The state takes up `u` where it should take up `u - w h`: a rule without the delta term, but for its reads."""
    _, o = chunk_step(h, chunk)
    return chunk.decay[..., None, None] * h + einsum("bhck,bhcv->bhkv", chunk.k_decayed, chunk.u), o


def _error_before_decay(h: Array, token: Token) -> tuple[Array, Array]:
    """`e = beta (v - h^T k)` with the state that has not decayed yet."""
    q, k, v, g, beta = token
    e = beta[..., None] * (v - einsum("bhk,bhkv->bhv", k, h))
    h = jnp.exp(g)[..., None, None] * h + einsum("bhk,bhv->bhkv", k, e)
    return h, einsum("bhkv,bhk->bhv", h, q)


def _value_heads_tiled(q: Array, k: Array, v: Array, *rest: Array, **keywords: Any) -> tuple[Array, Array]:
    """Value head i reads key head `i mod Hk` where it should read `i // (Hv / Hk)`."""
    group = v.shape[2] // q.shape[2]
    return sequential(jnp.tile(q, (1, 1, group, 1)), jnp.tile(k, (1, 1, group, 1)), v, *rest, **keywords)


UPDATE_WITH_U = Implementation("update_with_u", partial(chunked, step=_update_with_u))
ERROR_BEFORE_DECAY = Implementation("error_before_decay", partial(sequential, step=_error_before_decay))
VALUE_HEADS_TILED = Implementation("value_heads_tiled", _value_heads_tiled)
