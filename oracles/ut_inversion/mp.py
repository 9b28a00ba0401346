"""The UT transform in mpmath, at any precision, one matrix at a time.

Arrays are taken exactly, whether they hold floats or `mpf` (object arrays).
"""

import numpy as np
from jaxtyping import Shaped
from mpmath import mp

from oracles.ut_inversion import check_cotangent, check_strictly_lower

Square = Shaped[np.ndarray, "C C"]


def inverse(S: Square, *, digits: int) -> mp.matrix:
    """`T = (I + S)^-1`, column by column from `(I + S) T = I`.

    Raises ValueError unless `S` is square and strictly lower triangular.
    """
    check_strictly_lower(S)
    with mp.workdps(digits):
        size, S = len(S), mp.matrix(S)
        T = mp.eye(size)
        for j in range(size):
            for i in range(j + 1, size):
                T[i, j] = -mp.fsum(S[i, m] * T[m, j] for m in range(j, i))
        return T


def adjoint(T: mp.matrix, dT: Square, *, digits: int) -> mp.matrix:
    """`dS = strict_lower(-(T^T dT T^T))`, where `T = inverse(S)`. Raises ValueError unless the shapes agree."""
    check_cotangent((T.rows, T.cols), dT)
    with mp.workdps(digits):
        full = -(T.T * mp.matrix(dT) * T.T)
        dS = mp.zeros(T.rows)
        for i in range(T.rows):
            for j in range(i):
                dS[i, j] = full[i, j]
        return dS
