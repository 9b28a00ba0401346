"""The rule in mpmath, at any precision, in the symbols of the equations: to be read, not to be fast.

One batch row and one value head at a time. Arrays are taken exactly, whether they hold floats or `mpf`
(object arrays), so that an input can be perturbed by far less than its own unit roundoff. Vectors are columns.
"""

import numpy as np
from jaxtyping import Int, Shaped
from mpmath import mp

from oracles.segments import starts

Keys = Shaped[np.ndarray, "T K"]
Values = Shaped[np.ndarray, "T V"]
Gates = Shaped[np.ndarray, " T"]
State = Shaped[np.ndarray, "K V"]
Segments = Int[np.ndarray, " T"]


def forward(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    *,
    scale: float | None,
    digits: int,
    segment_ids: Segments | None = None,
) -> tuple[mp.matrix, mp.matrix]:
    """`o [T, V]` and `final_state [K, V]`, in `digits` decimal digits. `scale=None` means `K**-1/2`, as precise.

    With `segment_ids` the state is 0 before each further document (`oracles.segments`).
    """
    first = starts(segment_ids, g.shape)
    with mp.workdps(digits):
        scale = _scale(scale, q.shape[1])
        h, o = mp.matrix(initial_state), mp.matrix(*v.shape)
        for t in range(len(g)):
            q_t, k_t, v_t, g_t, beta_t = _token(t, q, k, v, g, beta)
            h_tilde = _decay(g_t, first[t]) * h
            e_t = beta_t * (v_t - h_tilde.T * k_t)
            h = h_tilde + k_t * e_t.T
            o[t, :] = (scale * h.T * q_t).T
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
    scale: float | None,
    digits: int,
    segment_ids: Segments | None = None,
) -> tuple[mp.matrix, mp.matrix, mp.matrix, mp.matrix, mp.matrix, mp.matrix]:
    """`dq, dk [T, K]`, `dv [T, V]`, `dg, dbeta [T, 1]` and `dh0 [K, V]`, in `digits` decimal digits."""
    first = starts(segment_ids, g.shape)
    with mp.workdps(digits):
        scale = _scale(scale, q.shape[1])
        tokens = len(g)
        h, h_tilde, e = [mp.matrix(initial_state)], [], []
        for t in range(tokens):
            k_t, v_t, g_t, beta_t = _token(t, k, v, g, beta)
            h_tilde.append(_decay(g_t, first[t]) * h[t])
            e.append(beta_t * (v_t - h_tilde[t].T * k_t))
            h.append(h_tilde[t] + k_t * e[t].T)

        dq, dk, dv = mp.matrix(*q.shape), mp.matrix(*k.shape), mp.matrix(*v.shape)
        dg, dbeta = mp.matrix(tokens, 1), mp.matrix(tokens, 1)
        L = mp.matrix(dfinal_state)
        for t in reversed(range(tokens)):
            q_t, k_t, v_t, g_t, beta_t, do_t = _token(t, q, k, v, g, beta, do)
            L = L + scale * q_t * do_t.T
            dq[t, :] = (scale * h[t + 1] * do_t).T
            de = L.T * k_t
            dv_t = beta_t * de
            dbeta[t] = mp.fdot(de, v_t - h_tilde[t].T * k_t)
            dk[t, :] = (L * e[t] - h_tilde[t] * dv_t).T
            dv[t, :] = dv_t.T
            L = L - k_t * dv_t.T
            dg[t] = mp.fdot(L, h_tilde[t])
            L = _decay(g_t, first[t]) * L
        return dq, dk, dv, dg, dbeta, L


def _decay(g_t: mp.mpf, is_first: np.bool_) -> mp.mpf:
    return mp.mpf(0) if is_first else mp.exp(g_t)


def _scale(scale: float | None, key_size: int) -> mp.mpf:
    return 1 / mp.sqrt(key_size) if scale is None else mp.mpf(scale)


def _token(t: int, *inputs: np.ndarray) -> list[mp.matrix | mp.mpf]:
    """Token `t` of every input: a column vector of a `[T, K]` or `[T, V]`, a number of a `[T]`."""
    return [mp.matrix(x[t]) if x.ndim == 2 else mp.mpmathify(x[t]) for x in inputs]
