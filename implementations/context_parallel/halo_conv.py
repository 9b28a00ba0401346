"""The causal convolution over ranks, by an explicit permute: each sends its last W - 1 tokens to the next.

On load-balanced (zigzag) data as it lies, each piece does.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.causal_conv import causal_conv, check_inputs, documents, of_last_document, sums_in, taps
from implementations.context_parallel.pieces import Order, as_rows, as_they_lay, from_piece_before, number, order_of
from implementations.context_parallel.ranks import Axes, are_manual, check_layout, check_ranks, count, held


def halo_conv(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    mesh: Mesh,
    axes: Axes,
    segment_ids: Int[Array, "B T"] | None = None,
    piece_order: Sequence[int] | None = None,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`(y, final_state)` as `causal_conv`, T sharded over `axes`; every rank returns the same final state.

    `piece_order`: which piece of the sequence lies where along T, as for `load_balanced`; None is the order of the
    sequence. Axes of the mesh that are not named may shard B and D, and go on doing so.
    Raises ValueError as `check_call`.
    """
    order = check_call(x, weight, initial_state, mesh, axes, segment_ids, piece_order)
    if len(order) == 1 and not are_manual(axes):
        return causal_conv(x, weight, initial_state, segment_ids=segment_ids)
    halo, accumulate = weight.shape[1] - 1, sums_in(x, weight)

    def local(x: Array, weight: Array, initial_state: Array, segment_ids: Any) -> tuple[Array, Array]:
        tokens = as_rows(x.astype(accumulate), axes, order)
        piece = number(len(tokens), axes, order)[:, None, None]
        tail = tokens[:, tokens.shape[1] - halo :]
        sent = from_piece_before(tail.astype(x.dtype), axes, order)
        pieces = len(tokens) // len(x)
        state = jnp.repeat(initial_state, pieces, axis=0)
        before = jnp.where(piece == 0, state, sent.astype(accumulate))
        ids = None if segment_ids is None else as_rows(segment_ids, axes, order)
        document = documents(_ids_before(ids, halo, axes, order), ids)
        y = taps(jnp.concatenate([before, tokens], axis=1), weight, document)
        kept = of_last_document(tail, document)
        of_the_last = jnp.where(piece == len(order) - 1, kept, 0).reshape(len(x), pieces, *kept.shape[1:]).sum(axis=1)
        return as_they_lay(y, axes, order).astype(x.dtype), jax.lax.psum(of_the_last, axes)

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
    # jit: jax 0.10 runs no shard_map over some axes only without it
    y, final_state = (local if are_manual(axes) else jax.jit(over_ranks))(x, *wide, segment_ids)
    return y, final_state.astype(x.dtype)


def _ids_before(segment_ids: Array | None, halo: int, axes: Axes, order: Order) -> Array | None:
    """The ids of the tokens before each piece of the rank; what comes before token 0 is of its document."""
    if segment_ids is None:
        return None
    sent = from_piece_before(segment_ids[:, segment_ids.shape[1] - halo :], axes, order)
    return jnp.where(number(len(segment_ids), axes, order)[:, None] == 0, segment_ids[:, :1], sent)


def check_call(
    x: Array,
    weight: Array,
    initial_state: Array,
    mesh: Mesh,
    axes: Axes,
    segment_ids: Array | None = None,
    piece_order: Sequence[int] | None = None,
) -> Order:
    """The order of the pieces, one for each rank where none is given. Raises ValueError on shapes or dtypes that do not
    fit together, on axes that the mesh lacks, on an order that does not hold each piece once, on a T that is not a
    multiple of the number of ranks and pieces, on tokens that are laid out over the same axes in another order, and
    where ranks, or pieces, hold fewer tokens than a halo has.
    """
    check_inputs(x, weight, initial_state, segment_ids)
    check_ranks(x.shape[1], mesh, axes)
    check_layout(axes, x=x, segment_ids=segment_ids)
    ranks, of_rank = count(mesh, axes), held(x.shape[1], mesh, axes)
    order = order_of(piece_order, ranks, held=of_rank)
    check_halo(weight.shape[1], order, ranks, held=of_rank)
    return order


def check_halo(width: int, order: Order, ranks: int, *, held: int) -> None:
    """Raise ValueError where one of several pieces has fewer tokens than the next one needs before its own."""
    of_a_piece = held * ranks // len(order)
    if len(order) > 1 and of_a_piece < width - 1:
        what = "T / R" if len(order) == ranks else "T / pieces"
        raise ValueError(
            f"each {'rank' if len(order) == ranks else 'piece'} must hold at least the W - 1 = {width - 1} tokens that "
            f"the next one needs before its own; got {what} = {held * ranks} / {len(order)} = {of_a_piece}: use fewer "
            f"{'ranks' if len(order) == ranks else 'pieces'} or longer sequences"
        )
