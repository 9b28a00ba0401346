"""The gated delta rule, forward and adjoint, three times: in float64, in mpmath and in balls.

The three share this module's names and checks, and no arithmetic.

Per batch row and value head, with state `h [K, V]`, log decay `g`, write strength `beta` (Yang, Kautz,
Hatamizadeh, "Gated Delta Networks", 2024, equation 10, in the convention of Qwen3-Next)::

    h~  = exp(g_t) h_{t-1}
    e_t = beta_t (v_t - h~^T k_t)
    h_t = h~ + k_t e_t^T
    o_t = scale h_t^T q_t
"""

import numpy as np

INPUTS = ("q", "k", "v", "g", "beta", "initial_state")
OUTPUTS = ("o", "final_state")
GRADIENTS = ("dq", "dk", "dv", "dg", "dbeta", "dh0")
QUANTITIES = OUTPUTS + GRADIENTS


def check_inputs(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray, initial_state: np.ndarray
) -> None:
    """Raise ValueError unless the six inputs fit together (shapes as in `float64.forward`)."""
    if q.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q must be [B, T, Hk, K] and v [B, T, Hv, V]; got {q.shape} and {v.shape}")
    batch, tokens, key_heads, key_size = q.shape
    value_heads, value_size = v.shape[2:]
    if key_heads == 0 or value_heads == 0 or value_heads % key_heads:
        raise ValueError(f"Hv must be a multiple of Hk; got Hv = {value_heads}, Hk = {key_heads}")
    expected = {
        "k": (k, (batch, tokens, key_heads, key_size)),
        "v": (v, (batch, tokens, value_heads, value_size)),
        "g": (g, (batch, tokens, value_heads)),
        "beta": (beta, (batch, tokens, value_heads)),
        "initial_state": (initial_state, (batch, value_heads, key_size, value_size)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(f"with q {q.shape} and v {v.shape}, {name} must have shape {shape}; got {array.shape}")


def check_cotangents(v: np.ndarray, initial_state: np.ndarray, do: np.ndarray, dfinal_state: np.ndarray) -> None:
    """Raise ValueError unless the cotangents have the shapes of the outputs: nothing is broadcast."""
    if do.shape != v.shape or dfinal_state.shape != initial_state.shape:
        raise ValueError(
            f"do must have the shape of v, {v.shape}, and dfinal_state that of initial_state, {initial_state.shape}; "
            f"got {do.shape} and {dfinal_state.shape}"
        )
