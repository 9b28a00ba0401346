"""Rule and convolution as one rank does them, for who has made all axes manual already.

A scheme makes the axes of its ranks manual by a `shard_map` of its own, and jax makes no axis manual twice. So inside a
`shard_map` over everything its parts are called themselves: a map, an exchange, a replay.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from implementations.arithmetic import accumulation_dtype
from implementations.causal_conv import causal_conv
from implementations.chunked import join, scan
from implementations.context_parallel.affine import fold
from implementations.context_parallel.exchange import all_gather_prefix
from implementations.context_parallel.ranks import Axes, permute
from implementations.context_parallel.three_phase import local_pass, three_phase
from implementations.context_parallel.two_phase import enter, two_phase
from implementations.contract import Implementation
from implementations.segments import changes, numbered
from implementations.ut_inversion.substitution import substitution

Call = Callable[..., tuple[Array, Array]]


def on_rank(rule: Implementation) -> Call | None:
    """What `rule` does on one rank, `call(q, k, v, g, beta, initial_state, *, chunk_size, axes, segment_ids=None)`, for
    a scheme that is made of a map and an exchange, as `two_phase` and `three_phase`. None for others.
    """
    call, told = (rule.call.func, rule.call.keywords) if isinstance(rule.call, partial) else (rule.call, {})
    maps = {two_phase: fold, three_phase: local_pass}
    if call not in maps:
        return None
    return partial(_replayed, **{"map_of_rank": maps[call], **told})


def _replayed(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    chunk_size: int,
    axes: Axes,
    segment_ids: Int[Array, "B T"] | None = None,
    scale: float | None = None,
    invert: Any = substitution,
    exchange: Any = all_gather_prefix,
    walk: Any = scan,
    map_of_rank: Any,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    factors, entering, final_state = enter(
        *(q, k, v, g, beta, initial_state.astype(accumulation_dtype(v.dtype)), segment_ids),
        scale=scale,
        chunk_size=chunk_size,
        invert=invert,
        axes=axes,
        exchange=exchange,
        map_of_rank=map_of_rank,
    )
    _, o = walk(entering, factors)
    return join(o, v.shape[1]).astype(v.dtype), final_state.astype(initial_state.dtype)


def conv_on_rank(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    axes: Axes,
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`causal_conv` of one rank's tokens, whose initial state are the last tokens of the rank before; `final_state` is
    that of the last rank, on all.
    """
    rank, ranks, halo = jax.lax.axis_index(axes), jax.lax.axis_size(axes), weight.shape[1] - 1
    hops = [(r, r + 1) for r in range(ranks - 1)]
    sent = permute(x[:, x.shape[1] - halo :], axes, hops)
    if segment_ids is not None:
        ids = permute(segment_ids[:, segment_ids.shape[1] - halo :], axes, hops)
        document = numbered(changes(jnp.concatenate([ids, segment_ids[:, :1]], axis=1)))
        sent = jnp.where((document[:, :halo] == document[:, halo:])[..., None], sent, 0)
    before = jnp.where(rank == 0, initial_state, sent)
    y, end = causal_conv(x, weight, before, segment_ids=segment_ids)
    return y, jax.lax.psum(jnp.where(rank == ranks - 1, end, 0), axes)
