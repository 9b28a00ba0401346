"""Affine maps of the state in ball arithmetic: every returned ball contains the true value. One row and head at a time.

Matrices are balls or arrays of floats, which are taken exactly. A number of maps that differs between arguments, or
matrices that do not fit, raise ValueError. `oracles.gated_delta_rule.ball.enclose` finds how many bits it takes.
"""

from collections.abc import Iterable

import numpy as np
from flint import arb_mat, ctx
from jaxtyping import Float64

from oracles.affine_composition import augmented
from oracles.gated_delta_rule import ball as rule

Matrix = arb_mat | Float64[np.ndarray, "_ _"]
Pair = tuple[arb_mat, arb_mat]


def compose(later: Pair, earlier: Pair, *, bits: int) -> Pair:
    """Balls around the map that applies `earlier`, then `later`."""
    (A2, B2), (A1, B1) = later, earlier
    with ctx.workprec(bits):
        return A2 * A1, A2 * B1 + B2


def incoming_states(
    A: Iterable[Matrix], B: Iterable[Matrix], initial_state: Matrix, *, bits: int
) -> tuple[list[arb_mat], arb_mat]:
    """Balls around the state that enters each rank (`initial_state` enters rank 0), and around the final state."""
    with ctx.workprec(bits):
        states, h = [], _balls(initial_state)
        for A_r, B_r in zip(A, B, strict=True):
            states.append(h)
            h = _balls(A_r) * h + _balls(B_r)
        return states, h


def adjoint(
    A: Iterable[Matrix],
    B: Iterable[Matrix],
    initial_state: Matrix,
    dstates: Iterable[Matrix],
    dfinal_state: Matrix,
    *,
    bits: int,
) -> tuple[list[arb_mat], list[arb_mat], arb_mat]:
    """Balls around `(dA, dB, dh0)`: the vjp of `incoming_states` with cotangents for both outputs."""
    A, B = list(A), list(B)
    with ctx.workprec(bits):
        states, _ = incoming_states(A, B, initial_state, bits=bits)
        dA, dB = [], []
        L = _balls(dfinal_state)
        for A_r, h_r, dh_r in reversed(list(zip(A, states, dstates, strict=True))):
            dA.append(L * h_r.transpose())
            dB.append(L)
            L = _balls(A_r).transpose() * L + _balls(dh_r)
        return dA[::-1], dB[::-1], L


def transition(k: rule.Keys, v: rule.Values, g: rule.Gates, beta: rule.Gates, *, bits: int) -> tuple[arb_mat, arb_mat]:
    """Balls around `(A, B)` of a stretch of tokens, from one run of the rule on `[v | 0]` and `[0 | I]`."""
    values, state = augmented(v, k.shape[1])
    _, final = rule.forward(k, k, values, g, beta, state, scale=1.0, bits=bits)
    rows = final.tolist()
    return arb_mat([row[v.shape[1] :] for row in rows]), arb_mat([row[: v.shape[1]] for row in rows])


def _balls(matrix: Matrix) -> arb_mat:
    return arb_mat(matrix.tolist())
