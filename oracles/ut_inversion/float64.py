"""The UT transform in NumPy float64, vectorised over leading dimensions, by forward substitution."""

import numpy as np
from jaxtyping import Float64

from oracles.ut_inversion import check_cotangent, check_strictly_lower

Square = Float64[np.ndarray, "*batch C C"]


def ut_matrix(
    k: Float64[np.ndarray, "*batch C K"], g: Float64[np.ndarray, "*batch C"], beta: Float64[np.ndarray, "*batch C"]
) -> Square:
    """`S = strict_lower(diag(beta) K K^T * D)` of one chunk, with `D_ij = exp(G_i - G_j)` and `G` the cumulative `g`.

    `G` starts afresh in each chunk. The differences carry the rounding of `G`, a relative error of about
    `u max|G|` in `S`, as in every chunked implementation.
    """
    G = np.cumsum(g, axis=-1)
    below = np.tri(k.shape[-2], k=-1, dtype=bool)
    # Masked before exp: above the diagonal the difference is positive and would overflow.
    D = np.exp(np.where(below, G[..., :, None] - G[..., None, :], -np.inf))
    return beta[..., :, None] * (k @ np.swapaxes(k, -1, -2)) * D


def inverse(S: Square) -> Square:
    """`T = (I + S)^-1`. Raises ValueError unless `S` is square and strictly lower triangular.

    Row by row, `T_i = e_i - sum_{j<i} S_ij T_j`: backward stable in each column, whatever the size of `S`.
    """
    check_strictly_lower(S)
    T = np.zeros_like(S)
    for i in range(S.shape[-1]):
        T[..., i, i] = 1.0
        T[..., i : i + 1, :i] = -S[..., i : i + 1, :i] @ T[..., :i, :i]
    return T


def adjoint(T: Square, dT: Square) -> Square:
    """`dS = strict_lower(-(T^T dT T^T))`, where `T = inverse(S)`. Raises ValueError unless the shapes agree."""
    check_cotangent(T.shape, dT)
    transposed = np.swapaxes(T, -1, -2)
    return np.tril(-(transposed @ dT @ transposed), k=-1)
