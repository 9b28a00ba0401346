"""The causal convolution in ball arithmetic: every returned ball contains the true value. One channel at a time.

Written as products with a banded matrix, which the other two do not form. Arrays of floats are taken exactly.
"""

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64

from oracles.causal_conv import check_cotangents, check_inputs

Tokens = Float64[np.ndarray, "B T"]
Weight = Float64[np.ndarray, " W"]
State = Float64[np.ndarray, "B W-1"]


def forward(x: Tokens, weight: Weight, initial_state: State, *, bits: int) -> tuple[arb_mat, arb_mat]:
    """Balls around `y [B, T]` and `final_state [B, W-1]`. Raises ValueError on shapes that do not fit together."""
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    with ctx.workprec(bits):
        tokens = np.concatenate([initial_state, x], axis=1)
        return _balls(tokens) * _band(weight, x.shape[1]), _balls(tokens[:, x.shape[1] :])


def adjoint(
    x: Tokens, weight: Weight, initial_state: State, dy: Tokens, dfinal_state: State, *, bits: int
) -> tuple[arb_mat, arb_mat, arb_mat]:
    """Balls around `dx [B, T]`, `dweight [1, W]` and `dinitial_state [B, W-1]`, for cotangents of both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    check_cotangents(x[..., None], initial_state[..., None], dy[..., None], dfinal_state[..., None])
    with ctx.workprec(bits):
        length, halo = x.shape[1], len(weight) - 1
        tokens = _balls(np.concatenate([initial_state, x], axis=1))
        kept = np.concatenate([np.zeros_like(x), dfinal_state], axis=1)
        dtokens = (_balls(dy) * _band(weight, length).transpose() + _balls(kept)).tolist()
        # Tap j is the diagonal of the band that starts at row j, and its gradient the sum along that diagonal.
        dband = tokens.transpose() * _balls(dy)
        dweight = [sum((dband[t + j, t] for t in range(length)), arb(0)) for j in range(len(weight))]
        return (
            arb_mat(len(x), length, [token for row in dtokens for token in row[halo:]]),
            arb_mat([dweight]),
            arb_mat(len(x), halo, [token for row in dtokens for token in row[:halo]]),
        )


def _band(weight: Weight, length: int) -> arb_mat:
    """`[T + W - 1, T]`: column t has the taps in rows t to t + W - 1."""
    band = arb_mat(length + len(weight) - 1, length)
    for t in range(length):
        for j, tap in enumerate(weight.tolist()):
            band[t + j, t] = tap
    return band


def _balls(matrix: Float64[np.ndarray, "_ _"]) -> arb_mat:
    rows, columns = matrix.shape  # said apart, for either may be 0
    return arb_mat(rows, columns, matrix.ravel().tolist())
