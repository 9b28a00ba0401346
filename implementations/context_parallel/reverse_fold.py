"""The map of a rank from its last chunk to its first: the cheapest fold that we know, and the one that keeps least.

Walking backwards, what is carried is the transition P of everything after the chunk, and the chunk's keys go through it
once for both parts of the map::

    X = P K~^T        B' = B + X u        P' = e^{G_C} P - X w        A = P after the first chunk

That is 4 C K^2 + 2 C K V a chunk, where `local_pass` takes 4 C K (K + V) and `fold` 2 C K (K + V) + 2 K^2 (K + V). In
exact arithmetic it is the same composition, from the left: `(A_N ... A_{n+1}) A_n` in place of `A_n (A_{n-1} ... A_1)`.
"""

import jax

from implementations.arithmetic import einsum
from implementations.chunked import Factors
from implementations.context_parallel.affine import Affine, no_chunk


def reverse_fold(chunks: Factors, later: Affine | None = None) -> Affine:
    """`(A, B)` of all chunks (leading axis), as `fold` returns it; with `later`, of these and what follows them.

    `jax.checkpoint` on the body, or the backward keeps X of every chunk; so it keeps P, and not B, which is only added
    to. The last chunk stays in the loop, though its product with I could be saved (2 C K^2, once): taking it out would
    copy the factors of all others.
    """

    @jax.checkpoint
    def body(later: Affine, chunk: Factors) -> tuple[Affine, None]:
        P, B = later
        X = einsum("...ij,...cj->...ic", P, chunk.k_decayed)
        B = B + einsum("...ic,...cv->...iv", X, chunk.u)
        return (chunk.decay[..., None, None] * P - einsum("...ic,...cj->...ij", X, chunk.w), B), None

    return jax.lax.scan(body, no_chunk(chunks) if later is None else later, chunks, reverse=True)[0]
