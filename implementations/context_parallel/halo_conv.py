"""The causal convolution over ranks, by an explicit permute: each sends its last W - 1 tokens to the next."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.causal_conv import causal_conv, check_inputs, documents, of_last_document, sums_in, taps
from implementations.context_parallel.ranks import Axes, check_layout, check_ranks, permute


def halo_conv(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    mesh: Mesh,
    axes: Axes,
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`(y, final_state)` as `causal_conv`, T sharded over `axes`; every rank returns the same final state.

    Axes of the mesh that are not named may shard B and D, and go on doing so.
    Raises ValueError as `check_call`.
    """
    ranks = check_call(x, weight, initial_state, mesh, axes, segment_ids)
    if ranks == 1:
        return causal_conv(x, weight, initial_state, segment_ids=segment_ids)
    halo, accumulate = weight.shape[1] - 1, sums_in(x, weight)

    def local(x: Array, weight: Array, initial_state: Array, segment_ids: Any) -> tuple[Array, Array]:
        rank = jax.lax.axis_index(axes)
        tokens = x.astype(accumulate)
        tail = tokens[:, tokens.shape[1] - halo :]
        sent = permute(tail.astype(x.dtype), axes, [(r, r + 1) for r in range(ranks - 1)])
        before = jnp.where(rank == 0, initial_state, sent.astype(accumulate))
        document = documents(_ids_before(segment_ids, halo, axes), segment_ids)
        y = taps(jnp.concatenate([before, tokens], axis=1), weight, document)
        kept = of_last_document(tail, document)
        final_state = jax.lax.psum(jnp.where(rank == ranks - 1, kept, 0), axes)
        return y.astype(x.dtype), final_state

    of_tokens, of_all = PartitionSpec(None, axes), PartitionSpec()
    over_ranks = jax.shard_map(
        local,
        mesh=mesh,
        axis_names=set(axes),
        in_specs=(of_tokens, of_all, of_all, of_tokens),
        out_specs=(of_tokens, of_all),
    )
    # What ranks add up, they add before it is rounded. (XLA for CPUs also aborts on a bf16 sum over some axes only.)
    wide = weight.astype(accumulate), initial_state.astype(accumulate)
    y, final_state = jax.jit(over_ranks)(
        x, *wide, segment_ids
    )  # jit: jax 0.10 runs no shard_map over some axes only without it
    return y, final_state.astype(x.dtype)


def _ids_before(segment_ids: Array | None, halo: int, axes: Axes) -> Array | None:
    """The ids of the tokens before the rank's own; what comes before token 0 is of its document."""
    if segment_ids is None:
        return None
    hops = [(r, r + 1) for r in range(jax.lax.axis_size(axes) - 1)]
    sent = permute(segment_ids[:, segment_ids.shape[1] - halo :], axes, hops)
    return jnp.where(jax.lax.axis_index(axes) == 0, segment_ids[:, :1], sent)


def check_call(
    x: Array, weight: Array, initial_state: Array, mesh: Mesh, axes: Axes, segment_ids: Array | None = None
) -> int:
    """The number of ranks. Raises ValueError on shapes or dtypes that do not fit together, on axes that the mesh lacks,
    on a T that is not a multiple of the number of ranks, on tokens that are laid out over the same axes in another
    order, and where ranks hold fewer tokens than a halo has.
    """
    check_inputs(x, weight, initial_state, segment_ids)
    check_ranks(x.shape[1], mesh, axes)
    check_layout(axes, x=x, segment_ids=segment_ids)
    ranks = math.prod(mesh.shape[axis] for axis in axes)
    held, halo = x.shape[1] // ranks, weight.shape[1] - 1
    if ranks > 1 and held < halo:
        raise ValueError(
            f"each rank must hold at least the W - 1 = {halo} tokens that the next one needs before its own; got "
            f"T / R = {x.shape[1]} / {ranks} = {held}: use fewer ranks or longer sequences"
        )
    return ranks
