"""The UT transform by forward substitution: backward stable on every S, and the slowest on a matrix unit."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def substitution(S: Float[Array, "... C C"]) -> Float[Array, "... C C"]:
    """`(I + S)^-1` for strictly lower triangular S (what stands on or above the diagonal is not read)."""
    identity = jnp.broadcast_to(jnp.eye(S.shape[-1], dtype=S.dtype), S.shape)
    return jax.lax.linalg.triangular_solve(S, identity, left_side=True, lower=True, unit_diagonal=True)
