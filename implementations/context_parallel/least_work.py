"""Context parallelism with the fewest products that we know: only ranks that have one before and one after fold.

Rank 0 knows the state that enters it, so it replays its tokens at once and publishes the state that it leaves, as the
map `0 h + leaving`. The last rank publishes nothing that another needs. Every rank between folds from its last chunk to
its first (`reverse_fold`). So two ranks do no more than one, and R do `(R - 2) / R` of a fold more.

Not for the shortest time: ranks work at the same time, and those between pay for a fold as they would anyway.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from implementations.chunked import Factors, chunk_step, join, prepare
from implementations.context_parallel.affine import Affine
from implementations.context_parallel.exchange import Exchange, all_gather_prefix, of_the_last_rank
from implementations.context_parallel.ranks import check_call, over_ranks, starts_on_rank
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.contract import Implementation

Replay = tuple[Float[Array, "B Hv K V"], Float[Array, "N B Hv C V"]]


def least_work(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None = None,
    chunk_size: int = 64,
    mesh: Mesh,
    axes: tuple[str, ...],
    segment_ids: Int[Array, "B T"] | None = None,
    exchange: Exchange = all_gather_prefix,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, T sharded over `axes`; every rank returns the same final state.

    Raises ValueError as `two_phase` does.
    """
    inputs = (q, k, v, g, beta, initial_state)
    check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)

    def local(*inputs: Any) -> tuple[Array, Array]:
        *tokens, h0, segments = inputs
        rank, last = jax.lax.axis_index(axes), jax.lax.axis_size(axes) - 1
        first = starts_on_rank(segments, axes)
        factors = prepare(*tokens, scale=scale, chunk_size=chunk_size, first=first)
        role = jnp.where(rank == 0, 0, jnp.where(rank == last, 2, 1))
        pair, replayed = jax.lax.switch(role, (_replayed_first, _folded, _nothing), factors, h0)
        entering, _ = exchange(pair, h0, axes)
        leaving, o = jax.lax.cond(rank == 0, lambda: replayed, lambda: _replay(factors, entering))
        return join(o, tokens[2].shape[1]).astype(v.dtype), of_the_last_rank(leaving, axes)

    return over_ranks(local, mesh, axes)(*inputs, segment_ids)


def _replay(factors: Factors, h: Array) -> Replay:
    return jax.lax.scan(chunk_step, h, factors)


def _replayed_first(factors: Factors, h0: Array) -> tuple[Affine, Replay]:
    leaving, o = _replay(factors, h0)
    K = factors.w.shape[-1]
    return (jnp.zeros((*h0.shape[:2], K, K), h0.dtype), leaving), (leaving, o)


def _folded(factors: Factors, h0: Array) -> tuple[Affine, Replay]:
    return reverse_fold(factors), (jnp.zeros_like(h0), jnp.zeros_like(factors.u))


def _nothing(factors: Factors, h0: Array) -> tuple[Affine, Replay]:
    return jax.tree.map(jnp.zeros_like, jax.eval_shape(_folded, factors, h0))


LEAST_WORK = Implementation("least_work", least_work, context_parallel=True, packed=True)
