"""Counter-examples: the inverse from powers of S. Do not use them.

`(I + S)^-1 = I - S + S^2 - ...` ends after C terms, for S is nilpotent, and log2(C) products sum it exactly, in exact
arithmetic. But powers of S may be 1e36 where the inverse stays below 1: where keys repeat the terms cancel, and
nothing is left. On random normal keys both are as good as any other way, so that they pass where only those are tried
(maxtext #4577, vllm #53864, and others).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.ut_inversion.products import Product, full


def neumann(S: Float[Array, "... C C"], *, product: Product = full) -> Float[Array, "... C C"]:
    """`(I - S)(I + S^2)(I + S^4)...`, by doubling."""
    S = jnp.tril(S, -1)
    identity = jnp.eye(S.shape[-1], dtype=S.dtype)
    power, T = product(S, S), identity - S
    for _ in range(1, (S.shape[-1] - 1).bit_length()):
        T = T + product(T, power)
        power = product(power, power)
    return T


def newton(S: Float[Array, "... C C"], *, product: Product = full) -> Float[Array, "... C C"]:
    """`X <- X (2 I - (I + S) X)` from X = I - S (Newton-Schulz): its residual is a power of S at each step."""
    S = jnp.tril(S, -1)
    identity = jnp.eye(S.shape[-1], dtype=S.dtype)
    X = identity - S
    for _ in range(1, (S.shape[-1] - 1).bit_length()):
        X = product(X, 2 * identity - product(identity + S, X))
    return X
