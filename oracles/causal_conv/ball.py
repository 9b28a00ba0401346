"""The causal convolution in ball arithmetic: every returned ball contains the true value. One channel at a time.

Written as products with a banded matrix, which the other two do not form. Arrays of floats are taken exactly.
"""

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64, Int

from oracles.causal_conv import check_cotangents, check_inputs
from oracles.segments import numbered

Tokens = Float64[np.ndarray, "B T"]
Weight = Float64[np.ndarray, " W"]
State = Float64[np.ndarray, "B W-1"]
Segments = Int[np.ndarray, "B T"]


def forward(
    x: Tokens, weight: Weight, initial_state: State, *, bits: int, segment_ids: Segments | None = None
) -> tuple[arb_mat, arb_mat]:
    """Balls around `y [B, T]` and `final_state [B, W-1]`. Raises ValueError on shapes that do not fit together."""
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    with ctx.workprec(bits):
        tokens, documents = _with_state(x, initial_state, segment_ids)
        y = [_balls(row[None]) * _band(weight, of_row) for row, of_row in zip(tokens, documents, strict=True)]
        return _stacked(y, x.shape[1]), _balls(_kept(documents, len(weight)) * tokens[:, x.shape[1] :])


def adjoint(
    x: Tokens,
    weight: Weight,
    initial_state: State,
    dy: Tokens,
    dfinal_state: State,
    *,
    bits: int,
    segment_ids: Segments | None = None,
) -> tuple[arb_mat, arb_mat, arb_mat]:
    """Balls around `dx [B, T]`, `dweight [1, W]` and `dinitial_state [B, W-1]`, for cotangents of both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    check_cotangents(x[..., None], initial_state[..., None], dy[..., None], dfinal_state[..., None])
    with ctx.workprec(bits):
        (rows, length), halo = x.shape, len(weight) - 1
        tokens, documents = _with_state(x, initial_state, segment_ids)
        kept = np.concatenate([np.zeros_like(x), _kept(documents, len(weight)) * dfinal_state], axis=1)
        dtokens, dweight = [], [arb(0)] * len(weight)
        for row in range(rows):
            given = _balls(dy[row : row + 1])
            band = _band(weight, documents[row])
            dtokens.append((given * band.transpose() + _balls(kept[row : row + 1])).entries())
            # Tap j is the diagonal of the band that starts at row j, and its gradient the sum along that diagonal.
            dband = _balls(tokens[row : row + 1]).transpose() * given
            for j in range(len(weight)):
                within = [t for t in range(length) if documents[row, t + j] == documents[row, t + halo]]
                dweight[j] = sum((dband[t + j, t] for t in within), dweight[j])
        return (
            arb_mat(rows, length, [token for row in dtokens for token in row[halo:]]),
            arb_mat([dweight]),
            arb_mat(rows, halo, [token for row in dtokens for token in row[:halo]]),
        )


def _with_state(x: Tokens, initial_state: np.ndarray, segment_ids: Segments | None) -> tuple[np.ndarray, np.ndarray]:
    """`[initial_state | x]`, and the number of the document of each of these tokens."""
    documents = numbered(segment_ids, x.shape)
    before = np.zeros(initial_state.shape, documents.dtype)
    return np.concatenate([initial_state, x], axis=1), np.concatenate([before, documents], axis=1)


def _kept(documents: Int[np.ndarray, "B N"], width: int) -> Float64[np.ndarray, "B _"]:
    """1 where a token of the final state is of the last document, and 0 elsewhere."""
    return 1.0 * (documents[:, documents.shape[1] - (width - 1) :] == documents[:, -1:])


def _band(weight: Weight, documents: Int[np.ndarray, " N"]) -> arb_mat:
    """`[T + W - 1, T]`: column t has the taps in rows t to t + W - 1, as far as these are of its document."""
    halo = len(weight) - 1
    length = len(documents) - halo
    band = arb_mat(length + halo, length)
    for t in range(length):
        for j, tap in enumerate(weight.tolist()):
            if documents[t + j] == documents[t + halo]:
                band[t + j, t] = tap
    return band


def _stacked(rows: list[arb_mat], length: int) -> arb_mat:
    return arb_mat(len(rows), length, [entry for row in rows for entry in row.entries()])


def _balls(matrix: Float64[np.ndarray, "_ _"]) -> arb_mat:
    rows, columns = matrix.shape  # said apart, for either may be 0
    return arb_mat(rows, columns, matrix.ravel().tolist())
