"""Affine maps of the state in mpmath, at any precision, in the symbols of the equations. One row and head at a time.

Matrices are taken exactly, whether they are mpmath's own or arrays of floats or `mpf`. A number of maps that
differs between arguments, or matrices that do not fit, raise ValueError.
"""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from jaxtyping import Shaped
from mpmath import mp

from oracles.affine_composition import augmented
from oracles.gated_delta_rule import mp as rule

Matrix: TypeAlias = mp.matrix | Shaped[np.ndarray, "_ _"]
Pair = tuple[mp.matrix, mp.matrix]


def compose(later: Pair, earlier: Pair, *, digits: int) -> Pair:
    """The map that applies `earlier`, then `later`."""
    (A2, B2), (A1, B1) = later, earlier
    with mp.workdps(digits):
        return A2 * A1, A2 * B1 + B2


def incoming_states(
    A: Iterable[Matrix], B: Iterable[Matrix], initial_state: Matrix, *, digits: int
) -> tuple[list[mp.matrix], mp.matrix]:
    """The state that enters each rank (an exclusive prefix: rank 0 gets `initial_state`), and the final state."""
    with mp.workdps(digits):
        states, h = [], mp.matrix(initial_state)
        for A_r, B_r in zip(A, B, strict=True):
            states.append(h)
            h = mp.matrix(A_r) * h + mp.matrix(B_r)
        return states, h


def adjoint(
    A: Iterable[Matrix],
    B: Iterable[Matrix],
    initial_state: Matrix,
    dstates: Iterable[Matrix],
    dfinal_state: Matrix,
    *,
    digits: int,
) -> tuple[list[mp.matrix], list[mp.matrix], mp.matrix]:
    """`(dA, dB, dh0)`: the vjp of `incoming_states` with cotangents for both outputs."""
    A, B = list(A), list(B)
    with mp.workdps(digits):
        states, _ = incoming_states(A, B, initial_state, digits=digits)
        dA, dB = [], []
        L = mp.matrix(dfinal_state)
        for A_r, h_r, dh_r in reversed(list(zip(A, states, dstates, strict=True))):
            dA.append(L * h_r.T)
            dB.append(L)
            L = mp.matrix(A_r).T * L + mp.matrix(dh_r)
        return dA[::-1], dB[::-1], L


def transition(
    k: rule.Keys, v: rule.Values, g: rule.Gates, beta: rule.Gates, *, digits: int
) -> tuple[mp.matrix, mp.matrix]:
    """`(A, B)` of a stretch of tokens, from one run of the rule on `[v | 0]` and `[0 | I]`."""
    values, state = augmented(v, k.shape[1])
    _, final = rule.forward(k, k, values, g, beta, state, scale=1.0, digits=digits)
    return final[:, v.shape[1] :], final[:, : v.shape[1]]
