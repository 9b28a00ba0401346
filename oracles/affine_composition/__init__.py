"""Composition of affine maps of the state, which is what ranks exchange: forward and adjoint, three times.

A stretch of tokens maps the state that enters it to the state that leaves it, `h' = A h + B` with
`A [K, K]` and `B [K, V]`. Such maps form a monoid (Blelloch, "Prefix sums and their applications", 1990)::

    (A2, B2) after (A1, B1) = (A2 A1, A2 B1 + B2)

The three share this module's checks, and no arithmetic. Each gets the map of a stretch from the gated delta rule of
the same arithmetic: with values `[v | 0]` and initial state `[0 | I]` the final state is `[B | A]`.
"""

import numpy as np


def check_maps(A: np.ndarray, B: np.ndarray, initial_state: np.ndarray) -> None:
    """Raise ValueError unless `A [..., R, K, K]`, `B [..., R, K, V]` and `initial_state [..., K, V]` fit together."""
    if B.ndim < 3:
        raise ValueError(f"B must be [..., R, K, V]; got {B.shape}")
    *leading, ranks, key_size, value_size = B.shape
    _require(
        B,
        A=(A, (*leading, ranks, key_size, key_size)),
        initial_state=(initial_state, (*leading, key_size, value_size)),
    )


def check_cotangents(B: np.ndarray, dstates: np.ndarray, dfinal_state: np.ndarray) -> None:
    """Raise ValueError unless `dstates [..., R, K, V]` and `dfinal_state [..., K, V]` fit `B [..., R, K, V]`."""
    *leading, _, key_size, value_size = B.shape
    _require(B, dstates=(dstates, B.shape), dfinal_state=(dfinal_state, (*leading, key_size, value_size)))


def _require(B: np.ndarray, **expected: tuple[np.ndarray, tuple[int, ...]]) -> None:
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(f"with B {B.shape}, {name} must have shape {shape}; got {array.shape}")


def augmented(v: np.ndarray, key_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Values `[v | 0]` and initial state `[0 | I]` for one row and head: the rule then ends in `[B | A]`."""
    tokens, value_size = v.shape
    values = np.hstack([v, np.zeros((tokens, key_size))])
    return values, np.hstack([np.zeros((key_size, value_size)), np.eye(key_size)])
