"""How the ranks learn the state that enters them. Called inside a `shard_map` over `axes`.

Every form takes this rank's `(A, B)`, the map from the state that enters it to the state that leaves it, and the
initial state, which all ranks hold, and returns the state that enters this rank and the state after the last one. Ranks
are linearised over `axes`, the first axis major. For R ranks and a head of K x V, in elements of that head:

| form | collectives in sequence | elements that travel |
|---|---|---|
| `all_gather_prefix` | 1 | R (R - 1) (K^2 + K V) |
| `log_depth_prefix` | ceil(log2 R) + 1 | (R ceil(log2 R) - 2^ceil(log2 R) + 1) (K^2 + K V) + (R - 1) K V, and a sum |
| `ring` | R | (R - 1) K V, and a sum |

The sum is of one state over all ranks.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.context_parallel.affine import Affine, apply, compose
from implementations.context_parallel.ranks import Axes, gather, permute

State = Float[Array, "B H K V"]
Exchange = Callable[[Affine, Array, Axes], tuple[Array, Array]]


def all_gather_prefix(pair: Affine, initial_state: State, axes: Axes, *, reverse: bool = False) -> tuple[State, State]:
    """One all-gather of R pairs, then the exclusive prefix over ranks applied to `initial_state` (thread 2).

    `reverse`: from the last rank to the first, as cotangents are handed over.
    """
    pairs = gather(pair, axes)

    def next_rank(h: State, pair: Affine) -> tuple[State, State]:
        return apply(pair, h), h

    final_state, entering = jax.lax.scan(next_rank, initial_state, pairs, reverse=reverse)
    return jnp.take(entering, jax.lax.axis_index(axes), axis=0), final_state


def log_depth_prefix(pair: Affine, initial_state: State, axes: Axes) -> tuple[State, State]:
    """The inclusive prefix of maps in `ceil(log2 R)` rounds (Hillis and Steele 1986): in each, a rank composes its map
    with that of the rank 1, 2, 4, ... before it. Then each rank's leaving state moves on by one rank.
    """
    ranks, rank = jax.lax.axis_size(axes), jax.lax.axis_index(axes)
    distance = 1
    while distance < ranks:
        hops = [(r, r + distance) for r in range(ranks - distance)]
        (A, B), (longer_A, longer_B) = pair, compose(pair, permute(pair, axes, hops))
        pair = jnp.where(rank >= distance, longer_A, A), jnp.where(rank >= distance, longer_B, B)
        distance *= 2
    leaving = apply(pair, initial_state)
    previous = permute(leaving, axes, [(r, r + 1) for r in range(ranks - 1)])
    return jnp.where(rank == 0, initial_state, previous), of_the_last_rank(leaving, axes)


def ring(pair: Affine, initial_state: State, axes: Axes) -> tuple[State, State]:
    """A state is passed from rank to rank: each waits for the one before it, and no map travels."""
    ranks, rank = jax.lax.axis_size(axes), jax.lax.axis_index(axes)
    entering = initial_state
    for hop in range(ranks - 1):
        arrived = permute(apply(pair, entering), axes, [(hop, hop + 1)])
        entering = jnp.where(rank == hop + 1, arrived, entering)
    return entering, of_the_last_rank(apply(pair, entering), axes)


EXCHANGES: Mapping[str, Exchange] = {
    exchange.__name__: exchange for exchange in (all_gather_prefix, log_depth_prefix, ring)
}


def of_the_last_rank(state: State, axes: Axes) -> State:
    """Known to all: a sum in which every other rank adds 0."""
    is_last = jax.lax.axis_index(axes) == jax.lax.axis_size(axes) - 1
    return jax.lax.psum(jnp.where(is_last, state, 0), axes)
