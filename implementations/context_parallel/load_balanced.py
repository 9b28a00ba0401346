"""Context parallelism on load-balanced (zigzag) data as it lies: a rank holds several stretches of the sequence.

Softmax attention under a causal mask is balanced by giving rank r the pieces r and 2R - 1 - r of 2R. The rule is not in
need of it, but the layers of a hybrid model share their tokens. Each rank publishes the affine map of each of its
pieces, all maps are put into sequence order, and the state that enters a piece is the prefix before it. A piece is to
the kernel what a row of the batch is, so that any scheme's map serves.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Shaped

from implementations.chunked import chunk_step, join, prepare
from implementations.context_parallel.affine import Affine, apply
from implementations.context_parallel.ranks import Axes, check_call, gather, over_ranks, pieces_in
from implementations.context_parallel.three_phase import local_pass
from implementations.context_parallel.two_phase import MapOfRank
from implementations.contract import Implementation
from implementations.segments import changes


def zigzag(ranks: int) -> tuple[int, ...]:
    """Rank r holds piece r and piece 2R - 1 - r of the sequence."""
    return tuple(piece for rank in range(ranks) for piece in (rank, 2 * ranks - 1 - rank))


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
    ranks = math.prod(mesh.shape[axis] for axis in axes)
    order = tuple(range(ranks)) if piece_order is None else pieces_in(piece_order)
    check_pieces(order, ranks, tokens=v.shape[1])
    rows, held, tokens = v.shape[0], len(order) // ranks, v.shape[1] // len(order)

    def local(*inputs: Any) -> tuple[Array, Array]:
        *sequences, h0, segments = inputs
        pieces = [x.reshape(rows * held, tokens, *x.shape[2:]) for x in sequences]
        first = None if segments is None else starts_of_pieces(segments.reshape(rows * held, tokens), rows, axes, order)
        factors = prepare(*pieces, scale=scale, chunk_size=chunk_size, first=first)
        entering, final_state = enter_pieces(map_of_rank(factors), h0, axes, order)
        _, o = jax.lax.scan(chunk_step, entering, factors)
        o = join(o, tokens).reshape(rows, held * tokens, *o.shape[2:3], o.shape[-1])
        return o.astype(v.dtype), final_state

    return over_ranks(local, mesh, axes)(*inputs, segment_ids)


def check_pieces(order: Sequence[int], ranks: int, *, tokens: int) -> None:
    """Raise ValueError unless `order` holds each piece once and as many on each rank, and T is a multiple of them."""
    if sorted(order) != list(range(len(order))) or len(order) % ranks or not order:
        raise ValueError(
            f"piece_order must hold each of the pieces 0, 1, ... once, and as many for each of the {ranks} ranks; "
            f"got {tuple(order)}"
        )
    if tokens % len(order):
        raise ValueError(
            f"T must be a multiple of the number of pieces, each holds T / {len(order)} tokens; got T = {tokens}"
        )


def enter_pieces(
    pair: Affine, initial_state: Float[Array, "B H K V"], axes: Axes, order: Sequence[int]
) -> tuple[Float[Array, "BP H K V"], Float[Array, "B H K V"]]:
    """The state that enters each piece of this rank, and the final state; called inside a `shard_map` over `axes`.

    `pair`: of each piece that lies here, the pieces of a row together.
    """

    def next_piece(h: Array, pair: Affine) -> tuple[Array, Array]:
        return apply(pair, h), h

    A, B = (_of_all_pieces(x, initial_state.shape[0], axes, order) for x in pair)
    final_state, entering = jax.lax.scan(next_piece, initial_state, (A, B))
    return _of_own_pieces(entering, axes, order), final_state


def starts_of_pieces(
    segment_ids: Int[Array, "BP T"], rows: int, axes: Axes, order: Sequence[int]
) -> Bool[Array, "BP T"] | None:
    """Which tokens of the pieces that lie here are the first of a further document; called as `enter_pieces`."""
    last = _of_all_pieces(segment_ids[:, -1:], rows, axes, order)
    first_of_all = _of_all_pieces(segment_ids[:, :1], rows, axes, order)[:1]
    return changes(segment_ids, _of_own_pieces(jnp.concatenate([first_of_all, last[:-1]]), axes, order))


def _of_all_pieces(x: Shaped[Array, "BP ..."], rows: int, axes: Axes, order: Sequence[int]) -> Array:
    """`[pieces, B, ...]` of every rank's pieces, in the order of the sequence."""
    held = len(order) // jax.lax.axis_size(axes)
    place = np.argsort(order)  # of each piece of the sequence, along T
    of_all = gather(x.reshape(rows, held, *x.shape[1:]), axes)
    return jnp.moveaxis(of_all, 2, 1).reshape(len(order), rows, *x.shape[1:])[place]


def _of_own_pieces(x: Shaped[Array, "P B ..."], axes: Axes, order: Sequence[int]) -> Array:
    """`[B pieces, ...]` of those that lie on this rank."""
    mine = jnp.asarray(order).reshape(jax.lax.axis_size(axes), -1)[jax.lax.axis_index(axes)]
    return jnp.moveaxis(x[mine], 0, 1).reshape(len(mine) * x.shape[1], *x.shape[2:])


LOAD_BALANCED = Implementation("load_balanced", load_balanced, context_parallel=True, load_balanced=True, packed=True)
