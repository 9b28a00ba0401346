"""The causal convolution in mpmath, at any precision, written to be read beside the equation. One channel at a time.

Arrays are taken exactly, whether they hold floats or `mpf` (object arrays).
"""

import numpy as np
from jaxtyping import Int, Shaped
from mpmath import mp

from oracles.causal_conv import check_cotangents, check_inputs
from oracles.segments import starts

Tokens = Shaped[np.ndarray, "B T"]
Weight = Shaped[np.ndarray, " W"]
State = Shaped[np.ndarray, "B W-1"]
Segments = Int[np.ndarray, "B T"]


def forward(
    x: Tokens, weight: Weight, initial_state: State, *, digits: int, segment_ids: Segments | None = None
) -> tuple[mp.matrix, mp.matrix]:
    """`y [B, T]` and `final_state [B, W-1]`. Raises ValueError on shapes that do not fit together."""
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    first = starts(segment_ids, x.shape)
    with mp.workdps(digits):
        (rows, length), width = x.shape, len(weight)
        y, final_state = mp.matrix(rows, length), mp.matrix(rows, width - 1)
        for b in range(rows):
            for t in range(length):
                read = [(j, t - (width - 1) + j) for j in range(width)]
                y[b, t] = mp.fsum(
                    weight[j] * _token(x, initial_state, b, n) for j, n in read if _same_document(first[b], n, t)
                )
            for i in range(width - 1):
                n = length - (width - 1) + i
                if _same_document(first[b], n, length - 1):
                    final_state[b, i] = _token(x, initial_state, b, n)
        return y, final_state


def adjoint(
    x: Tokens,
    weight: Weight,
    initial_state: State,
    dy: Tokens,
    dfinal_state: State,
    *,
    digits: int,
    segment_ids: Segments | None = None,
) -> tuple[mp.matrix, mp.matrix, mp.matrix]:
    """`dx [B, T]`, `dweight [1, W]` and `dinitial_state [B, W-1]`, for cotangents of both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(x[..., None], weight[None], initial_state[..., None])
    check_cotangents(x[..., None], initial_state[..., None], dy[..., None], dfinal_state[..., None])
    first = starts(segment_ids, x.shape)
    with mp.workdps(digits):
        (rows, length), width = x.shape, len(weight)

        def dtoken(b: int, n: int) -> mp.mpf:
            """What token n, counted from token 0 of x, has done: tap j has read it for y_{n+(W-1)-j}."""
            readers = [(j, n + (width - 1) - j) for j in range(width) if 0 <= n + (width - 1) - j < length]
            in_state = n - (length - (width - 1))
            is_kept = in_state >= 0 and _same_document(first[b], n, length - 1)
            kept = [dfinal_state[b, in_state]] if is_kept else []
            return mp.fsum([weight[j] * mp.mpf(dy[b, t]) for j, t in readers if _same_document(first[b], n, t)] + kept)

        dx, dweight, dstate = mp.matrix(rows, length), mp.matrix(1, width), mp.matrix(rows, width - 1)
        for b in range(rows):
            for t in range(length):
                dx[b, t] = dtoken(b, t)
            for i in range(width - 1):
                dstate[b, i] = dtoken(b, i - (width - 1))
        for j in range(width):
            dweight[0, j] = mp.fsum(
                mp.mpf(dy[b, t]) * _token(x, initial_state, b, t - (width - 1) + j)
                for b in range(rows)
                for t in range(length)
                if _same_document(first[b], t - (width - 1) + j, t)
            )
        return dx, dweight, dstate


def _same_document(first: np.ndarray, earlier: int, later: int) -> bool:
    """Whether no document begins after the `earlier` token, up to the later one."""
    return not any(first[max(earlier + 1, 0) : later + 1])


def _token(x: Tokens, initial_state: Shaped[np.ndarray, "B _"], b: int, n: int) -> mp.mpf:
    """Token n, counted from token 0 of x; those before it are of the state."""
    return mp.mpf(x[b, n] if n >= 0 else initial_state[b, n])
