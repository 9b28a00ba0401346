"""The causal depthwise convolution, forward and adjoint, three times: in float64, in mpmath and in balls.

Each channel is filtered on its own with W taps, as the `causal_conv1d` of Qwen3-Next does before its activation::

    y_t = sum_j weight_j x_{t-(W-1)+j}

The W - 1 tokens before token 0 are `initial_state`, in the order of the sequence, and `final_state` is the last W - 1
tokens of `[initial_state | x]`. With `segment_ids` a token of another document counts as 0, for an output and, where it
is another than that of the last token, in `final_state` (`oracles.segments`; `initial_state` is of the document of
token 0). The three share this module's checks, and no arithmetic.
"""

import numpy as np


def check_inputs(x: np.ndarray, weight: np.ndarray, initial_state: np.ndarray) -> None:
    """Raise ValueError unless `x [B, T, D]`, `weight [D, W]` and `initial_state [B, W-1, D]` fit together, W > 0."""
    if x.ndim != 3 or weight.ndim != 2:
        raise ValueError(f"x must be [B, T, D] and weight [D, W]; got {x.shape} and {weight.shape}")
    batch, _, channels = x.shape
    width = weight.shape[1]
    if weight.shape[0] != channels or width < 1:
        raise ValueError(f"weight must have W > 0 taps for each of the {channels} channels of x; got {weight.shape}")
    _require(x, "initial_state", initial_state, (batch, width - 1, channels))


def check_cotangents(x: np.ndarray, initial_state: np.ndarray, dy: np.ndarray, dfinal_state: np.ndarray) -> None:
    """Raise ValueError unless the cotangents have the shapes of the outputs: nothing is broadcast."""
    _require(x, "dy", dy, x.shape)
    _require(x, "dfinal_state", dfinal_state, initial_state.shape)


def _require(x: np.ndarray, name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"with x {x.shape}, {name} must have shape {shape}; got {array.shape}")
