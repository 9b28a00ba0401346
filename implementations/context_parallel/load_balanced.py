"""Context parallelism on load-balanced (zigzag) data as it lies: a rank holds several stretches of the sequence.

The rule is not in need of such an order, but the layers of a hybrid model share their tokens. Each rank publishes the
affine map of each of its pieces, all maps are put into sequence order, and the state that enters a piece is the prefix
before it. A piece is to the kernel what a row of the batch is, so that any scheme's map serves.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Shaped

from implementations.chunked import chunk_step, join, prepare
from implementations.context_parallel.affine import Affine, apply
from implementations.context_parallel.pieces import Order, as_rows, as_they_lay, from_piece_before, number, order_of
from implementations.context_parallel.ranks import Axes, check_call, count, gather, held, over_ranks
from implementations.context_parallel.three_phase import local_pass
from implementations.context_parallel.two_phase import MapOfRank
from implementations.contract import Implementation
from implementations.segments import changes


def load_balanced(
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
    piece_order: Sequence[int] | None = None,
    segment_ids: Int[Array, "B T"] | None = None,
    map_of_rank: MapOfRank = local_pass,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, with tokens and `o` in the order of `piece_order`.

    `piece_order`: which piece of the sequence, cut into equal ones, lies where along T: first those of rank 0, then
    those of rank 1, and so on, as many on each. None is the order of the sequence, a piece on each rank.
    Raises ValueError on shapes that do not fit together, on axes that the mesh lacks, on an order that does not hold
    each piece once, and on a T or a number of ranks that the pieces cannot be split over.
    """
    inputs = (q, k, v, g, beta, initial_state)
    check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)
    order = order_of(piece_order, count(mesh, axes), held=held(v.shape[1], mesh, axes))

    def local(*inputs: Any) -> tuple[Array, Array]:
        *sequences, h0, segments = inputs
        pieces = [as_rows(x, axes, order) for x in sequences]
        first = None if segments is None else starts_of_pieces(as_rows(segments, axes, order), axes, order)
        factors = prepare(*pieces, scale=scale, chunk_size=chunk_size, first=first)
        entering, final_state = enter_pieces(map_of_rank(factors), h0, axes, order)
        _, o = jax.lax.scan(chunk_step, entering, factors)
        return as_they_lay(join(o, pieces[2].shape[1]), axes, order).astype(v.dtype), final_state

    return over_ranks(local, mesh, axes)(*inputs, segment_ids)


def enter_pieces(
    pair: Affine, initial_state: Float[Array, "B H K V"], axes: Axes, order: Order
) -> tuple[Float[Array, "BP H K V"], Float[Array, "B H K V"]]:
    """The state that enters each piece of this rank, and the final state; called inside a `shard_map` over `axes`.

    `pair`: of each piece that lies here, the pieces of a row together.
    """

    def next_piece(h: Array, pair: Affine) -> tuple[Array, Array]:
        return apply(pair, h), h

    A, B = (_of_all_pieces(x, initial_state.shape[0], axes, order) for x in pair)
    final_state, entering = jax.lax.scan(next_piece, initial_state, (A, B))
    return _of_own_pieces(entering, axes, order), final_state


def starts_of_pieces(segment_ids: Int[Array, "BP T"], axes: Axes, order: Order) -> Bool[Array, "BP T"]:
    """Which tokens of the pieces that lie here are the first of a further document; called as `enter_pieces`."""
    is_first = number(len(segment_ids), axes, order)[:, None] == 0
    before = from_piece_before(segment_ids[:, -1:], axes, order)
    return changes(segment_ids, jnp.where(is_first, segment_ids[:, :1], before))


def _of_all_pieces(x: Shaped[Array, "BP ..."], rows: int, axes: Axes, order: Order) -> Array:
    """`[pieces, B, ...]` of every rank's pieces, in the order of the sequence."""
    here = len(order) // jax.lax.axis_size(axes)
    place = np.argsort(order)  # of each piece of the sequence, along T
    of_all = gather(x.reshape(rows, here, *x.shape[1:]), axes)
    return jnp.moveaxis(of_all, 2, 1).reshape(len(order), rows, *x.shape[1:])[place]


def _of_own_pieces(x: Shaped[Array, "P B ..."], axes: Axes, order: Order) -> Array:
    """`[B pieces, ...]` of those that lie on this rank."""
    mine = jnp.asarray(order).reshape(jax.lax.axis_size(axes), -1)[jax.lax.axis_index(axes)]
    return jnp.moveaxis(x[mine], 0, 1).reshape(len(mine) * x.shape[1], *x.shape[2:])


LOAD_BALANCED = Implementation("load_balanced", load_balanced, context_parallel=True, load_balanced=True, packed=True)
