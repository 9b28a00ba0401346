"""The workhorse oracle: the rule token by token in NumPy float64, vectorised over batch rows and heads.

Never trusted on its own word: `oracles.certify` holds samples of it against balls.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int

from oracles.gated_delta_rule import check_cotangents, check_inputs
from oracles.segments import starts

Keys = Float64[np.ndarray, "B T Hk K"]
Values = Float64[np.ndarray, "B T Hv V"]
Gates = Float64[np.ndarray, "B T Hv"]
State = Float64[np.ndarray, "B Hv K V"]
Segments = Int[np.ndarray, "B T"]


def forward(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    *,
    scale: float | None = None,
    segment_ids: Segments | None = None,
) -> tuple[Values, State]:
    """`(o, final_state)`. `scale=None` means `K**-0.5`; with `segment_ids` the state is 0 before each further document
    (`oracles.segments`). Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state)
    decay = _decays(g, segment_ids)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k = _repeat_heads(q, v.shape[2]), _repeat_heads(k, v.shape[2])
    h, o = initial_state, np.empty_like(v)
    for t in range(v.shape[1]):
        h, _, _ = _write(h, k[:, t], v[:, t], decay[:, t], beta[:, t])
        o[:, t] = scale * _read(h, q[:, t])
    return o, h


def adjoint(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    do: Values,
    dfinal_state: State,
    *,
    scale: float | None = None,
    segment_ids: Segments | None = None,
) -> tuple[Keys, Keys, Values, Gates, Gates, State]:
    """`(dq, dk, dv, dg, dbeta, dh0)`: the vjp of `forward` with cotangents for both outputs.

    Memory is `T` states per row and head. Raises ValueError on shapes that do not fit together.
    """
    found = forward_and_adjoint(q, k, v, g, beta, initial_state, do, dfinal_state, scale=scale, segment_ids=segment_ids)
    return found[2:]


def forward_and_adjoint(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    do: Values,
    dfinal_state: State,
    *,
    scale: float | None = None,
    segment_ids: Segments | None = None,
) -> tuple[Values, State, Keys, Keys, Values, Gates, Gates, State]:
    """The results of `forward` and of `adjoint`, from one walk over the tokens and back; raises as they do."""
    check_inputs(q, k, v, g, beta, initial_state)
    check_cotangents(v, initial_state, do, dfinal_state)
    decay = _decays(g, segment_ids)
    _, tokens, key_heads, key_size = q.shape
    scale = key_size**-0.5 if scale is None else scale
    q, k = _repeat_heads(q, v.shape[2]), _repeat_heads(k, v.shape[2])

    decayed = np.empty((tokens, *initial_state.shape))
    residual, o = np.empty_like(v), np.empty_like(v)
    h = initial_state
    for t in range(tokens):
        h, decayed[t], residual[:, t] = _write(h, k[:, t], v[:, t], decay[:, t], beta[:, t])
        o[:, t] = scale * _read(h, q[:, t])

    dq, dk, dv, dg, dbeta = (np.empty_like(x) for x in (q, k, v, g, beta))
    L = dfinal_state
    for t in reversed(range(tokens)):
        e = beta[:, t, :, None] * residual[:, t]
        dq[:, t] = scale * _apply(decayed[t] + _outer(k[:, t], e), do[:, t])
        L = L + scale * _outer(q[:, t], do[:, t])
        de = _read(L, k[:, t])
        dv[:, t] = beta[:, t, :, None] * de
        dbeta[:, t] = np.sum(de * residual[:, t], axis=-1)
        dk[:, t] = _apply(L, e) - _apply(decayed[t], dv[:, t])
        L = L - _outer(k[:, t], dv[:, t])
        dg[:, t] = np.sum(L * decayed[t], axis=(-2, -1))
        L = decay[:, t, :, None, None] * L
    return o, h, _sum_groups(dq, key_heads), _sum_groups(dk, key_heads), dv, dg, dbeta, L


def _decays(g: Gates, segment_ids: Segments | None) -> Gates:
    """exp(g), and 0 at the first token of each further document."""
    return np.where(starts(segment_ids, g.shape[:2])[..., None], 0.0, np.exp(g))


# These are called for every token and probe: a check of their annotations would cost many times what they compute.


@no_type_check
def _write(h: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, ...]:
    """One token: the next state, the decayed state, and the residual `v - h~^T k`."""
    decayed = decay[..., None, None] * h
    residual = v - _read(decayed, k)
    return decayed + _outer(k, beta[..., None] * residual), decayed, residual


@no_type_check
def _read(h: np.ndarray, k: np.ndarray) -> np.ndarray:
    """`h^T k`."""
    return np.squeeze(k[..., None, :] @ h, -2)


@no_type_check
def _apply(h: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`h v`."""
    return np.squeeze(h @ v[..., :, None], -1)


@no_type_check
def _outer(k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return k[..., :, None] * v[..., None, :]


def _repeat_heads(x: np.ndarray, value_heads: int) -> np.ndarray:
    """Each key head serves `Hv / Hk` consecutive value heads."""
    return np.repeat(x, value_heads // x.shape[2], axis=2)


def _sum_groups(x: np.ndarray, key_heads: int) -> np.ndarray:
    """The transpose of `_repeat_heads`."""
    return x.reshape(*x.shape[:2], key_heads, x.shape[2] // key_heads, x.shape[-1]).sum(axis=3)
