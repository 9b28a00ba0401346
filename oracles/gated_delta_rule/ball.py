"""The rule in ball arithmetic (python-flint `arb`): every returned ball contains the true value.

One batch row and one value head at a time. Precision is the caller's `bits`, or `enclose` finds it:
the radius grows by a fraction of a bit a token, so it is raised until the balls are tight.
"""

from collections.abc import Callable

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64

Keys = Float64[np.ndarray, "T K"]
Values = Float64[np.ndarray, "T V"]
Gates = Float64[np.ndarray, " T"]
State = Float64[np.ndarray, "K V"]

MOST_BITS = 16384


def forward(
    q: Keys, k: Keys, v: Values, g: Gates, beta: Gates, initial_state: State, *, scale: float | None, bits: int
) -> tuple[arb_mat, arb_mat]:
    """Balls around `o [T, V]` and `final_state [K, V]`, with `bits` of working precision."""
    with ctx.workprec(bits):
        scale_ball = _scale(scale, q.shape[1])
        h, o = _matrix(initial_state), []
        for t in range(len(g)):
            h, _, _ = _write(h, k[t], v[t], g[t], beta[t])
            o.append((_row(q[t]) * h * scale_ball).entries())
        return _rows(o, v.shape), h


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
    bits: int,
) -> tuple[arb_mat, arb_mat, arb_mat, arb_mat, arb_mat, arb_mat]:
    """Balls around `dq, dk [T, K]`, `dv [T, V]`, `dg, dbeta [T, 1]` and `dh0 [K, V]`."""
    with ctx.workprec(bits):
        scale_ball = _scale(scale, q.shape[1])
        h, decayed, residual = _matrix(initial_state), [], []
        for t in range(len(g)):
            h, h_decayed, r = _write(h, k[t], v[t], g[t], beta[t])
            decayed.append(h_decayed)
            residual.append(r)

        backwards: list[tuple[list[arb], ...]] = []
        L = _matrix(dfinal_state)
        for t in reversed(range(len(g))):
            key, b = _row(k[t]), arb(float(beta[t]))
            e = residual[t] * b
            do_t = _row(do[t]) * scale_ball
            dq = (decayed[t] + key.transpose() * e) * do_t.transpose()
            L = L + _row(q[t]).transpose() * do_t
            de = key * L
            dv = de * b
            dbeta = (de * residual[t].transpose()).entries()
            dk = L * e.transpose() - decayed[t] * dv.transpose()
            L = L - key.transpose() * dv
            dg = sum((x * y for x, y in zip(L.entries(), decayed[t].entries(), strict=True)), arb(0))
            L = L * arb(float(g[t])).exp()
            backwards.append((dq.entries(), dk.entries(), dv.entries(), [dg], dbeta))
        dq, dk, dv, dg, dbeta = zip(*reversed(backwards), strict=True)
        tokens = len(g)
        return _rows(dq, k.shape), _rows(dk, k.shape), _rows(dv, v.shape), _rows(dg, (tokens, 1)), _rows(dbeta, (tokens, 1)), L


def enclose(balls: Callable[[int], tuple[arb_mat, ...]], *, bits: int) -> tuple[tuple[arb_mat, ...], int]:
    """Call `balls(bits)` with doubled `bits` until every result is tight; return the balls and the bits it took.

    Tight: in each matrix no radius exceeds `2^-64` of the largest entry, eleven bits below float64.
    Raises ArithmeticError where 16384 bits do not suffice (an input that is not finite, for one).
    """
    while bits <= MOST_BITS:
        result = balls(bits)
        if all(_is_tight(matrix) for matrix in result):
            return result, bits
        bits *= 2
    raise ArithmeticError(f"no tight enclosure with {MOST_BITS} bits: are all inputs finite?")


def bits_for(tokens: int) -> int:
    """A first precision for `enclose`: about a third of a bit a token was measured to be lost."""
    return 128 + tokens // 3


def distance(approximation: np.ndarray, balls: arb_mat) -> np.ndarray:
    """Upper bounds of `|approximation - truth|`, entry by entry, in the shape of `approximation`."""
    entries = balls.entries()
    if approximation.size != len(entries):
        raise ValueError(f"{approximation.size} numbers against {len(entries)} balls")
    with ctx.workprec(256):
        bounds = [float((arb(float(x)) - ball).abs_upper()) for x, ball in zip(approximation.ravel(), entries, strict=True)]
    # float() rounds to nearest; one step up makes it a bound again (a distance of zero is exact).
    return np.array([np.nextafter(bound, np.inf) if bound else 0.0 for bound in bounds]).reshape(approximation.shape)


def _is_tight(matrix: arb_mat) -> bool:
    entries = matrix.entries()
    if not all(entry.is_finite() for entry in entries):
        return False
    largest = max((entry.abs_upper() for entry in entries), default=arb(0))
    return all(entry.rad() <= largest * arb(2) ** -64 for entry in entries)


def _write(h: arb_mat, k: np.ndarray, v: np.ndarray, g: float, beta: float) -> tuple[arb_mat, arb_mat, arb_mat]:
    key = _row(k)
    decayed = h * arb(float(g)).exp()
    residual = _row(v) - key * decayed
    return decayed + key.transpose() * (residual * arb(float(beta))), decayed, residual


def _scale(scale: float | None, key_size: int) -> arb:
    return 1 / arb(key_size).sqrt() if scale is None else arb(float(scale))


def _matrix(x: np.ndarray) -> arb_mat:
    return arb_mat(*x.shape, x.ravel().tolist())


def _row(x: np.ndarray) -> arb_mat:
    return arb_mat(1, len(x), x.tolist())


def _rows(rows: object, shape: tuple[int, ...]) -> arb_mat:
    return arb_mat(*shape, [entry for row in rows for entry in row])  # type: ignore[attr-defined]
