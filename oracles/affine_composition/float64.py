"""Affine maps of the state in NumPy float64. Everything but `transition` is vectorised over leading dimensions."""

import numpy as np
from jaxtyping import Float64

from oracles.affine_composition import augmented, check_cotangents, check_maps
from oracles.gated_delta_rule import float64 as rule

Pair = tuple[Float64[np.ndarray, "*batch K K"], Float64[np.ndarray, "*batch K V"]]
RankMatrices = Float64[np.ndarray, "*batch R K K"]
RankStates = Float64[np.ndarray, "*batch R K V"]
State = Float64[np.ndarray, "*batch K V"]


def compose(later: Pair, earlier: Pair) -> Pair:
    """The map that applies `earlier`, then `later`."""
    (A2, B2), (A1, B1) = later, earlier
    return A2 @ A1, A2 @ B1 + B2


def incoming_states(A: RankMatrices, B: RankStates, initial_state: State) -> tuple[RankStates, State]:
    """The state that enters each rank (an exclusive prefix: rank 0 gets `initial_state`), and the final state.

    Raises ValueError on shapes that do not fit together.
    """
    check_maps(A, B, initial_state)
    h, states = initial_state, np.empty_like(B)
    for r in range(B.shape[-3]):
        states[..., r, :, :] = h
        h = A[..., r, :, :] @ h + B[..., r, :, :]
    return states, h


def adjoint(
    A: RankMatrices, B: RankStates, initial_state: State, dstates: RankStates, dfinal_state: State
) -> tuple[RankMatrices, RankStates, State]:
    """`(dA, dB, dh0)`: the vjp of `incoming_states` with cotangents for both outputs.

    Raises ValueError on shapes that do not fit together.
    """
    states, _ = incoming_states(A, B, initial_state)
    check_cotangents(B, dstates, dfinal_state)
    dA, dB = np.empty_like(A), np.empty_like(B)
    L = dfinal_state
    for r in reversed(range(B.shape[-3])):
        dA[..., r, :, :] = L @ np.swapaxes(states[..., r, :, :], -1, -2)
        dB[..., r, :, :] = L
        L = np.swapaxes(A[..., r, :, :], -1, -2) @ L + dstates[..., r, :, :]
    return dA, dB, L


def transition(
    k: Float64[np.ndarray, "T K"],
    v: Float64[np.ndarray, "T V"],
    g: Float64[np.ndarray, " T"],
    beta: Float64[np.ndarray, " T"],
) -> tuple[Float64[np.ndarray, "K K"], Float64[np.ndarray, "K V"]]:
    """`(A, B)` of a stretch of tokens of one row and head, from one run of the rule on `[v | 0]` and `[0 | I]`."""
    values, state = augmented(v, k.shape[1])
    row, head = np.s_[None, :, None], np.s_[None, None]
    _, final = rule.forward(k[row], k[row], values[row], g[row], beta[row], state[head], scale=1.0)
    return final[0, 0, :, v.shape[1] :], final[0, 0, :, : v.shape[1]]
