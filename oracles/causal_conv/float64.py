"""The causal convolution in NumPy float64, vectorised over rows, tokens and channels: one shifted product a tap."""

import numpy as np
from jaxtyping import Float64, Int

from oracles.causal_conv import check_cotangents, check_inputs
from oracles.segments import numbered

Tokens = Float64[np.ndarray, "B T D"]
Weight = Float64[np.ndarray, "D W"]
State = Float64[np.ndarray, "B W-1 D"]
Segments = Int[np.ndarray, "B T"]


def forward(
    x: Tokens, weight: Weight, initial_state: State, *, segment_ids: Segments | None = None
) -> tuple[Tokens, State]:
    """`(y, final_state)`. Raises ValueError on shapes that do not fit together."""
    check_inputs(x, weight, initial_state)
    tokens, length = np.concatenate([initial_state, x], axis=1), x.shape[1]
    read, kept = _within(segment_ids, x, weight)
    y = np.zeros_like(x)
    for j in range(weight.shape[1]):
        y += weight[:, j] * (read[j] * tokens[:, j : j + length])
    return y, kept * tokens[:, length:]


def adjoint(
    x: Tokens,
    weight: Weight,
    initial_state: State,
    dy: Tokens,
    dfinal_state: State,
    *,
    segment_ids: Segments | None = None,
) -> tuple[Tokens, Weight, State]:
    """`(dx, dweight, dinitial_state)`: the vjp of `forward` with cotangents for both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(x, weight, initial_state)
    check_cotangents(x, initial_state, dy, dfinal_state)
    tokens, length = np.concatenate([initial_state, x], axis=1), x.shape[1]
    read, kept = _within(segment_ids, x, weight)
    dtokens, dweight = np.zeros_like(tokens), np.empty_like(weight)
    dtokens[:, length:] = kept * dfinal_state
    for j in range(weight.shape[1]):
        dtokens[:, j : j + length] += weight[:, j] * (read[j] * dy)
        dweight[:, j] = np.einsum("btd,btd->d", dy, read[j] * tokens[:, j : j + length])
    halo = weight.shape[1] - 1
    return dtokens[:, halo:], dweight, dtokens[:, :halo]


def _within(segment_ids: Segments | None, x: Tokens, weight: Weight) -> tuple[list[np.ndarray], np.ndarray]:
    """1 where what tap j reads is of the token's own document, `[B, T, 1]` for each j, and 0 elsewhere; and the same of
    what stays in the final state, for the document of the last token.
    """
    (batch, length, _), halo = x.shape, weight.shape[1] - 1
    of_x = numbered(segment_ids, (batch, length))
    of_all = np.concatenate([np.zeros((batch, halo), of_x.dtype), of_x], axis=1)[..., None]
    own = of_all[:, halo:]
    return [1.0 * (of_all[:, j : j + length] == own) for j in range(halo + 1)], 1.0 * (
        of_all[:, length:] == of_all[:, -1:]
    )
