"""What stands around the rule, in float64: each part gives its result and its pullback, both written by hand.

Every intermediate, and every cotangent of one, goes through `perturb` once, under a name of its own: that is where code
in finite precision rounds, and where a probe may move it. What follows reads the moved value, the pullbacks too. Where
a sum or difference cancels, its terms are named.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.causal_conv import float64 as causal_conv
from oracles.gated_delta_net import EPSILON

Perturb = Callable[[str, np.ndarray], np.ndarray]
Pullback = Callable[..., Any]


def as_it_is(name: str, value: np.ndarray) -> np.ndarray:
    """The `perturb` of the exact layer: nothing moves."""
    return value


def projection(name: str, x: np.ndarray, weight: np.ndarray, perturb: Perturb) -> tuple[np.ndarray, Pullback]:
    """`x [B, T, D]` by `weight [D, ...]` as `[B, T, ...]`, under the name; pulls back to `(dx, dweight)`."""
    projected = perturb(f"{name} projected", np.tensordot(x, weight, 1))

    def pullback(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d = perturb(f"d{name} projected", d)
        heads = d.ndim - 2
        dx = np.tensordot(d, weight, (range(2, 2 + heads), range(1, 1 + heads)))
        return perturb(f"dx by {name}", dx), np.tensordot(x, d, ((0, 1), (0, 1)))

    return projected, pullback


def convolution(
    name: str, x: np.ndarray, weight: np.ndarray, state: np.ndarray, documents: dict[str, Any], perturb: Perturb
) -> tuple[np.ndarray, np.ndarray, Pullback]:
    """`(y, final_state)` of `x [B, T, H, N]`, `weight [H, N, W]` and `state [B, W-1, H, N]`.

    Pulls `(dy, dfinal_state)` back to `(dx, dweight, dstate)`. `documents` is `segment_ids`, where there are any.
    """

    def channels(tokens: np.ndarray) -> np.ndarray:
        return tokens.reshape(*tokens.shape[:2], tokens.shape[2] * tokens.shape[3])

    given = channels(x), weight.reshape(-1, weight.shape[-1]), channels(state)
    y, final_state = causal_conv.forward(*given, **documents)

    def pullback(dy: np.ndarray, dfinal_state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dy = perturb(f"d{name} convolved", dy)
        dx, dweight, dstate = causal_conv.adjoint(*given, channels(dy), channels(dfinal_state), **documents)
        return dx.reshape(x.shape), dweight.reshape(weight.shape), dstate.reshape(state.shape)

    return perturb(f"{name} convolved", y.reshape(x.shape)), final_state.reshape(state.shape), pullback


def silu(name: str, x: np.ndarray, perturb: Perturb) -> tuple[np.ndarray, Pullback]:
    """`x sigmoid(x)`."""
    s, rest = sigmoid(f"{name} sigmoid", x, perturb)

    def pullback(dy: np.ndarray) -> np.ndarray:
        return perturb(f"d{name} silu", dy) * s * (1 + x * rest)

    return perturb(f"{name} silu", x * s), pullback


def normalised(
    name: str, x: np.ndarray, total: Callable[..., np.ndarray], perturb: Perturb
) -> tuple[np.ndarray, Pullback]:
    """`x / sqrt(total(x^2) + EPSILON)` over the last axis: l2 where `total` is `np.sum`, RMS where it is `np.mean`."""
    inverse = perturb(f"1 / norm of {name}", 1 / np.sqrt(total(x**2, axis=-1, keepdims=True) + EPSILON))
    n = perturb(f"{name} normalised", x * inverse)

    def pullback(dn: np.ndarray) -> np.ndarray:
        dn = perturb(f"d{name} normalised", dn)
        along = perturb(f"d{name} along {name}", total(n * dn, axis=-1, keepdims=True))
        return inverse * (dn - n * along)

    return n, pullback


def log_decay(a: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray, perturb: Perturb) -> tuple[np.ndarray, Pullback]:
    """`g = -exp(A_log) softplus(a + dt_bias)`; pulls back to `(da, dA_log, ddt_bias)`."""
    s = perturb("a + dt_bias", a + dt_bias)
    exact = np.logaddexp(0, s)
    dt, A = perturb("softplus", exact), perturb("exp(A_log)", np.exp(A_log))
    g = perturb("g", -A * dt)
    # exp(s - dt): jax takes it from the rounded dt, and where that is large the error of the exponent is large.
    slope = _sigmoid(s) * np.exp(exact - dt)

    def pullback(dg: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dg = perturb("dg", dg)
        ds = perturb("d(a + dt_bias)", -dg * A * slope)
        return ds, np.sum(dg * g, axis=(0, 1)), np.sum(ds, axis=(0, 1))

    return g, pullback


def write_strength(b: np.ndarray, perturb: Perturb) -> tuple[np.ndarray, Pullback]:
    """`beta = sigmoid(b)`."""
    beta, rest = sigmoid("beta", b, perturb)

    def pullback(dbeta: np.ndarray) -> np.ndarray:
        return perturb("dbeta", dbeta) * beta * rest

    return beta, pullback


def sigmoid(name: str, x: np.ndarray, perturb: Perturb) -> tuple[np.ndarray, np.ndarray]:
    """`(s, 1 - s)`, where s may move under the name, and 1 - s with it. Unmoved, neither cancels."""
    exact = _sigmoid(x)
    s = perturb(name, exact)
    return s, _sigmoid(-x) - (s - exact)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1 + small)
