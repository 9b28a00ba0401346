"""Padding of the GatedDeltaNet layer: tokens that are none, in front, behind or in between, as if they were not there.

Where `mask [B, T]` is False a token is padding. It writes nothing, decays nothing and is read by nobody, and it takes
up no room in the window of the convolution: a real token's window reaches over it, to the W - 1 real tokens before.
"""

import functools
import operator
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from implementations.causal_conv import check_inputs, sums_in
from implementations.segments import changes, numbered


def without_padding(x: Float[Array, "B T *rest"], mask: Bool[Array, "B T"] | None) -> Float[Array, "B T *rest"]:
    """x, with zeros for padding: no product, so that NaN is 0 too, and has no gradient."""
    return x if mask is None else jnp.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), x, 0)


def of_real_tokens(segment_ids: Int[Array, "B T"], mask: Bool[Array, "B T"]) -> Int[Array, "B T"]:
    """Ids of which those of padding are the one of the real token before it, or else of the first one: padding begins
    no document, and ends none.
    """
    tokens = jnp.arange(mask.shape[1])
    before = jax.lax.cummax(jnp.where(mask, tokens, -1), axis=1)
    first = jnp.argmax(mask, axis=1)[:, None]
    return jnp.take_along_axis(segment_ids, jnp.where(before < 0, first, before), axis=1)


def conv_of_real_tokens(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    mask: Bool[Array, "B T"],
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`causal_conv` of the real tokens alone: `y` is 0 at padding, and `final_state` holds the last W - 1 real tokens.

    x must be 0 at padding, and `segment_ids` as `of_real_tokens` has them. Raises ValueError as `causal_conv`.
    """
    check_inputs(x, weight, initial_state, segment_ids)
    accumulate, halo, last = sums_in(x, weight), weight.shape[1] - 1, x.shape[1] + weight.shape[1] - 2
    tokens = jnp.concatenate([initial_state, x], axis=1).astype(accumulate)
    real = jnp.pad(mask, ((0, 0), (halo, 0)), constant_values=True)
    document = None
    if segment_ids is not None:
        document = numbered(jnp.pad(changes(segment_ids), ((0, 0), (halo, 0))))

    def read(at: Int[Array, "B _"], reader: Int[Array, "B _"]) -> Float[Array, "B _ D"]:
        found = jnp.take_along_axis(tokens, at[..., None], axis=1)
        if document is None:
            return found
        same = jnp.take_along_axis(document, at, axis=1) == jnp.take_along_axis(document, reader, axis=1)
        return jnp.where(same[..., None], found, 0)

    each = jnp.broadcast_to(jnp.arange(halo, last + 1), mask.shape)
    windows = [*_backwards(real, each, halo + 1)][::-1]
    wide = weight.astype(accumulate)
    y = functools.reduce(operator.add, (wide[:, j] * read(at, each) for j, at in enumerate(windows)))

    end = jnp.max(jnp.where(real, jnp.arange(last + 1), 0), axis=1, keepdims=True)  # with W = 1 and no real token: 0
    kept = jnp.concatenate([end[:, :0], *[*_backwards(real, end, halo)][::-1]], axis=1)
    final_state = read(kept, jnp.broadcast_to(end, kept.shape))
    return without_padding(y, mask).astype(x.dtype), final_state.astype(x.dtype)


def _backwards(real: Bool[Array, "B N"], at: Int[Array, "B _"], count: int) -> Iterator[Int[Array, "B _"]]:
    """The tokens at `at`, the real ones before these, and so on, `count` in all."""
    upto = jax.lax.cummax(jnp.where(real, jnp.arange(real.shape[1]), 0), axis=1)
    before = jnp.concatenate([jnp.zeros_like(upto[:, :1]), upto[:, :-1]], axis=1)
    for _ in range(count):
        yield at
        at = jnp.take_along_axis(before, at, axis=1)
