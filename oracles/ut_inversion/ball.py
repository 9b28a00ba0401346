"""The UT transform in ball arithmetic: every returned ball contains the true value.

One matrix at a time, with the caller's `bits`; `oracles.gated_delta_rule.ball.enclose` finds how many it takes.
"""

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64

from oracles.ut_inversion import check_cotangent, check_strictly_lower

Square = Float64[np.ndarray, "C C"]


def inverse(S: Square, *, bits: int) -> arb_mat:
    """Balls around `T = (I + S)^-1`. Raises ValueError unless `S` is square and strictly lower triangular."""
    check_strictly_lower(S)
    size = len(S)
    with ctx.workprec(bits):
        rows: list[arb_mat] = []
        for i in range(size):
            row = arb_mat(1, size, [int(j == i) for j in range(size)])
            for j in range(i):
                row = row - rows[j] * arb(float(S[i, j]))
            rows.append(row)
        return arb_mat(size, size, [entry for row in rows for entry in row.entries()])


def adjoint(T: arb_mat, dT: Square, *, bits: int) -> arb_mat:
    """Balls around `dS = strict_lower(-(T^T dT T^T))`, where `T` are those of `inverse(S)`.

    Raises ValueError unless the shapes agree.
    """
    check_cotangent((T.nrows(), T.ncols()), dT)
    with ctx.workprec(bits):
        transposed = T.transpose()
        dS = -(transposed * arb_mat(dT.tolist()) * transposed)
        for i in range(T.nrows()):
            for j in range(i, T.ncols()):
                dS[i, j] = 0
        return dS
