"""Three-phase context parallelism (thread 3): a local pass from zero, the exchange, a second local pass.

The first pass carries the transition M of all chunks so far beside the state, and needs no K x K product:
`M' = e^{G_C} M - K~^T (w M)` costs 4 C K^2 a chunk where composing dense maps costs 2 C K^2 + 2 K^3. It is the step of
the rule itself, on values `[v | 0]` and the state `[0 | I]`. The second pass reuses the factors of the first.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from implementations.chunked import Factors, chunk_step
from implementations.context_parallel.affine import Affine
from implementations.context_parallel.exchange import Exchange, all_gather_prefix
from implementations.context_parallel.two_phase import stages, two_phase
from implementations.contract import Implementation


def local_pass(chunks: Factors) -> Affine:
    """`(A, B)` of all chunks (leading axis): where the rule takes `[0 | I]` is `[B | A]`.

    `jax.checkpoint` on the body, or the backward keeps what every chunk has written.
    """
    V = chunks.u.shape[-1]

    @jax.checkpoint
    def body(state: Array, chunk: Factors) -> tuple[Array, None]:
        return chunk_step(state, augmented(chunk))[0], None

    end, _ = jax.lax.scan(body, nothing_and_identity(chunks), chunks)
    return end[..., V:], end[..., :V]


def augmented(chunks: Factors) -> Factors:
    """The same factors of the values `[v | 0]`: of one chunk or of many."""
    return chunks._replace(u=jnp.concatenate([chunks.u, jnp.zeros_like(chunks.w)], axis=-1))


def nothing_and_identity(chunks: Factors) -> Float[Array, "B H K columns"]:
    """The state `[0 | I]` before the chunks (leading axis)."""
    K, V, dtype = chunks.w.shape[-1], chunks.u.shape[-1], chunks.decay.dtype
    start = jnp.concatenate([jnp.zeros((K, V), dtype), jnp.eye(K, dtype=dtype)], axis=-1)
    return jnp.broadcast_to(start, (*chunks.decay.shape[1:], *start.shape))


def three_phase(
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
    piece_order: Sequence[int] | None = None,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, as `two_phase` with the map of `local_pass`. Raises what that does."""
    return two_phase(
        *(q, k, v, g, beta, initial_state),
        scale=scale,
        chunk_size=chunk_size,
        mesh=mesh,
        axes=axes,
        segment_ids=segment_ids,
        exchange=exchange,
        map_of_rank=local_pass,
        piece_order=piece_order,
    )


THREE_PHASE = Implementation(
    "three_phase",
    three_phase,
    context_parallel=True,
    packed=True,
    stages=functools.partial(stages, map_of_rank=local_pass),
)
