"""Which piece of the sequence lies where: cut into equal ones, as many on each rank, in any order along T.

Softmax attention under a causal mask is balanced by giving rank r the pieces r and 2R - 1 - r of 2R (zigzag). To a
rule or a convolution a piece is what a row of the batch is, and what enters it is what the piece before it left.
"""

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from implementations.context_parallel.ranks import Axes, permute

Order = tuple[int, ...]


def zigzag(ranks: int) -> Order:
    """Rank r holds piece r and piece 2R - 1 - r of the sequence."""
    return tuple(piece for rank in range(ranks) for piece in (rank, 2 * ranks - 1 - rank))


def pieces_in(piece_order: Any) -> Order:
    """The numbers of the pieces, none where none are given. Raises ValueError where these are no integers."""
    try:
        return tuple(operator.index(piece) for piece in piece_order) if piece_order is not None else ()
    except TypeError:
        raise ValueError(f"piece_order must be a sequence of integers; got {piece_order!r}") from None


def order_of(piece_order: Sequence[int] | None, ranks: int, *, held: int) -> Order:
    """`piece_order`, or a piece on each rank in the order of the sequence.

    Raises ValueError unless it holds each piece once and as many for each rank, and these divide the `held` tokens of a
    rank.
    """
    order = tuple(range(ranks)) if piece_order is None else pieces_in(piece_order)
    if sorted(order) != list(range(len(order))) or len(order) % ranks or not order:
        raise ValueError(
            f"piece_order must hold each of the pieces 0, 1, ... once, and as many for each of the {ranks} ranks; "
            f"got {order}"
        )
    if held * ranks % len(order):
        raise ValueError(
            f"T must be a multiple of the number of pieces, each holds T / {len(order)} tokens; got T = {held * ranks}"
        )
    return order


def check_sequence_order(piece_order: Sequence[int] | None) -> None:
    """Raise ValueError unless `piece_order` is None or that of the sequence."""
    order = pieces_in(piece_order)
    if order != tuple(range(len(order))):
        raise ValueError(
            "the recurrence hands the state from each rank to the next, so that each must hold one stretch of tokens, "
            "in sequence order; in load-balanced (zigzag) order a rank holds several, and what enters one of them is "
            "not what the rank before it leaves: the result would be wrong, and nothing would say so. Lay the tokens "
            "out in sequence order, or use `load_balanced`, which takes them as they lie; "
            f"got piece_order={order}"
        )


# Called inside a `shard_map` over `axes`


def as_rows(x: Shaped[Array, "B T ..."], axes: Axes, order: Order) -> Shaped[Array, "BP _ ..."]:
    """The tokens of this rank, a row for each piece that lies here, those of a row of the batch together."""
    rows, tokens, *rest = x.shape
    pieces = len(order) // jax.lax.axis_size(axes)
    return x.reshape(rows * pieces, tokens // pieces, *rest)


def as_they_lay(x: Shaped[Array, "BP T ..."], axes: Axes, order: Order) -> Shaped[Array, "B _ ..."]:
    """The inverse of `as_rows`."""
    rows, tokens, *rest = x.shape
    pieces = len(order) // jax.lax.axis_size(axes)
    return x.reshape(rows // pieces, pieces * tokens, *rest)


def number(rows: int, axes: Axes, order: Order) -> Int[Array, " BP"]:
    """Which piece of the sequence each of the `rows` of `as_rows` is."""
    here = jnp.asarray(order).reshape(jax.lax.axis_size(axes), -1)[jax.lax.axis_index(axes)]
    return jnp.tile(here, rows // len(here))


def from_piece_before(x: Shaped[Array, "BP ..."], axes: Axes, order: Order) -> Shaped[Array, "BP ..."]:
    """What the piece before has as `x`, for each that lies here; 0 for the first of the sequence.

    By permutes, one for each place on a rank that a piece has and each that the next one has: one in the order of the
    sequence, three in zigzag order.
    """
    pieces = len(order) // jax.lax.axis_size(axes)
    of_places = x.reshape(len(x) // pieces, pieces, *x.shape[1:])
    lies = {piece: divmod(place, pieces) for place, piece in enumerate(order)}
    received: dict[int, Array] = {}
    for source in range(pieces):
        for target in range(pieces):
            steps = [(lies[piece], lies[piece + 1]) for piece in range(len(order) - 1)]
            hops = [(a, b) for (a, from_), (b, to) in steps if (from_, to) == (source, target)]
            if hops:
                sent = permute(of_places[:, source], axes, hops)
                received[target] = received[target] + sent if target in received else sent
    nothing = jnp.zeros_like(of_places[:, 0])
    return jnp.stack([received.get(place, nothing) for place in range(pieces)], axis=1).reshape(x.shape)
