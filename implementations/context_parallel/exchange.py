"""How the ranks learn the state that enters them. Called inside a `shard_map` over `axes`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.context_parallel.affine import Affine, apply

State = Float[Array, "B H K V"]


def all_gather_prefix(pair: Affine, initial_state: State, axes: tuple[str, ...]) -> tuple[State, State]:
    """`(the state entering this rank, the state after the last rank)` from every rank's `(A, B)`.

    One all-gather of R pairs, then the exclusive prefix over ranks applied to `initial_state`. Ranks are
    linearised over `axes`, the first axis major.
    """
    pairs = jax.lax.all_gather(pair, axes)

    def next_rank(h: State, pair: Affine) -> tuple[State, State]:
        return apply(pair, h), h

    final_state, entering = jax.lax.scan(next_rank, initial_state, pairs)
    return jnp.take(entering, jax.lax.axis_index(axes), axis=0), final_state
