"""The UT transform in rational arithmetic: the true value itself. For small C, since numerators grow with every row."""

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from oracles.ut_inversion import check_cotangent, check_strictly_lower

Square = Float64[np.ndarray, "C C"]


def inverse(S: Square) -> fmpq_mat:
    """`T = (I + S)^-1`. Raises ValueError unless `S` is finite, square and strictly lower triangular."""
    check_strictly_lower(S)
    return (rationals(np.eye(len(S))) + rationals(S)).inv()


def adjoint(T: fmpq_mat, dT: Square) -> fmpq_mat:
    """`dS = strict_lower(-(T^T dT T^T))`, where `T = inverse(S)`. Raises ValueError unless the shapes agree."""
    check_cotangent((T.nrows(), T.ncols()), dT)
    transposed = T.transpose()
    dS = -(transposed * rationals(dT) * transposed)
    for i in range(T.nrows()):
        for j in range(i, T.ncols()):
            dS[i, j] = 0
    return dS


def rationals(x: Float64[np.ndarray, "_ _"]) -> fmpq_mat:
    """The matrix itself: every finite float is a rational number. Raises ValueError on one that is not finite."""
    if not np.all(np.isfinite(x)):
        raise ValueError("a number that is not finite is not rational")
    return fmpq_mat([[fmpq(*entry.as_integer_ratio()) for entry in row] for row in x.tolist()])
