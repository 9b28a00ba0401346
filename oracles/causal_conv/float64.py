"""The causal convolution in NumPy float64, vectorised over rows, tokens and channels: one shifted product a tap."""

import numpy as np
from jaxtyping import Float64

from oracles.causal_conv import check_cotangents, check_inputs

Tokens = Float64[np.ndarray, "B T D"]
Weight = Float64[np.ndarray, "D W"]
State = Float64[np.ndarray, "B W-1 D"]


def forward(x: Tokens, weight: Weight, initial_state: State) -> tuple[Tokens, State]:
    """`(y, final_state)`. Raises ValueError on shapes that do not fit together."""
    check_inputs(x, weight, initial_state)
    tokens, (_, length, _) = np.concatenate([initial_state, x], axis=1), x.shape
    y = np.zeros_like(x)
    for j in range(weight.shape[1]):
        y += weight[:, j] * tokens[:, j : j + length]
    return y, tokens[:, length:]


def adjoint(
    x: Tokens, weight: Weight, initial_state: State, dy: Tokens, dfinal_state: State
) -> tuple[Tokens, Weight, State]:
    """`(dx, dweight, dinitial_state)`: the vjp of `forward` with cotangents for both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(x, weight, initial_state)
    check_cotangents(x, initial_state, dy, dfinal_state)
    tokens, (_, length, _) = np.concatenate([initial_state, x], axis=1), x.shape
    dtokens, dweight = np.zeros_like(tokens), np.empty_like(weight)
    dtokens[:, length:] = dfinal_state
    for j in range(weight.shape[1]):
        dtokens[:, j : j + length] += weight[:, j] * dy
        dweight[:, j] = np.einsum("btd,btd->d", dy, tokens[:, j : j + length])
    halo = weight.shape[1] - 1
    return dtokens[:, halo:], dweight, dtokens[:, :halo]
