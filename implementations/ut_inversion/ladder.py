"""The UT transform by a ladder of block sizes: 2 log2(C) products of whole matrices, and no power of S.

With X the inverse of the diagonal blocks of size b, and S_l what couples the two halves of each block of size 2b, the
inverse of the blocks of size 2b is exactly `X - X S_l X`. Doubling starts at b = 1, where X is the identity. What is
formed on the way is always a part of the inverse itself, so that nothing is larger than the answer (thread 4).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.ut_inversion.adjoint import with_its_adjoint
from implementations.ut_inversion.products import Product, full


def ladder(S: Float[Array, "... C C"], *, product: Product = full) -> Float[Array, "... C C"]:
    """`(I + S)^-1` for strictly lower triangular S (what stands on or above the diagonal is not read).

    C need not be a power of two. `product` multiplies forward and backward.
    """
    return with_its_adjoint(climb, product)(S)


def climb(S: Float[Array, "... C C"], product: Product) -> Float[Array, "... C C"]:
    """The ladder itself, of arrays that may lie in a kernel's memory."""
    size = S.shape[-1]
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (size, size), axis) for axis in (0, 1))
    X = jnp.where(row == column, 1, 0).astype(S.dtype) - jnp.where(_couples(row, column, 0), S, 0)
    for rung in range(1, (size - 1).bit_length()):
        S_l = jnp.where(_couples(row, column, rung), S, 0)
        X = X - product(product(X, S_l), X)
    return X


def _couples(row: Array, column: Array, rung: int) -> Array:
    """Whether an element lies in the lower left quarter of a block of size `2^(rung+1)` on the diagonal."""
    same_block = (row >> (rung + 1)) == (column >> (rung + 1))
    return same_block & ((row >> rung) > (column >> rung))
