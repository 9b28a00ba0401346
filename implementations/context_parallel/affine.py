"""A stretch of tokens as one affine map of the state: `h' = A h + B` (thread 1 of the design, "affine composition")."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.arithmetic import einsum
from implementations.chunked import Factors

Affine = tuple[Float[Array, "... K K"], Float[Array, "... K V"]]


def compose(later: Affine, earlier: Affine) -> Affine:
    """`(A2, B2)` after `(A1, B1)` is `(A2 A1, A2 B1 + B2)`: associative, not commutative."""
    (A2, B2), (A1, B1) = later, earlier
    return einsum("...ij,...jk->...ik", A2, A1), einsum("...ij,...jv->...iv", A2, B1) + B2


def apply(pair: Affine, h: Float[Array, "... K V"]) -> Float[Array, "... K V"]:
    """`A h + B`."""
    A, B = pair
    return einsum("...ij,...jv->...iv", A, h) + B


def of_chunk(chunk: Factors) -> Affine:
    """`A = e^{G_C} I - K~^T w` and `B = K~^T u`."""
    identity = jnp.eye(chunk.w.shape[-1], dtype=chunk.w.dtype)
    A = chunk.decay[..., None, None] * identity - einsum("...ck,...cj->...kj", chunk.k_decayed, chunk.w)
    return A, einsum("...ck,...cv->...kv", chunk.k_decayed, chunk.u)


def fold(chunks: Factors) -> Affine:
    """The composition of all chunks (leading axis) in sequence order.

    A scan, for an `associative_scan` would keep every running composition; `jax.checkpoint` on its body, or the
    backward keeps the intermediate products of every chunk (thread 1 counts 103 GB at 262,144 tokens).
    """

    @jax.checkpoint
    def body(earlier: Affine, chunk: Factors) -> tuple[Affine, None]:
        return compose(of_chunk(chunk), earlier), None

    return jax.lax.scan(body, no_chunk(chunks), chunks)[0]


def no_chunk(like: Factors) -> Affine:
    """The identity, shaped as the map of chunks `like` these (leading axis)."""
    K, V = like.w.shape[-1], like.u.shape[-1]
    batch_and_heads = like.decay.shape[1:]
    return (
        jnp.broadcast_to(jnp.eye(K, dtype=like.w.dtype), (*batch_and_heads, K, K)),
        jnp.zeros((*batch_and_heads, K, V), dtype=like.u.dtype),
    )
