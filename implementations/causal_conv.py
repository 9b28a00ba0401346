"""The causal depthwise convolution in front of the gated delta rule (`causal_conv1d`; in Qwen3-Next W = 4).

Each channel is filtered on its own, and no token sees a later one::

    y_t = sum_j weight[:, j] x_{t-(W-1)+j}

The W - 1 tokens before token 0 are `initial_state`, the last of its rows just before token 0. There is no activation:
SiLU belongs to the layer.
"""

import functools
import operator

import jax.numpy as jnp
from jaxtyping import Array, Float

from implementations.arithmetic import accumulation_dtype


def causal_conv(
    x: Float[Array, "B T D"], weight: Float[Array, "D W"], initial_state: Float[Array, "B W-1 D"]
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`(y, final_state)` in the dtype of x; `final_state` is the last W - 1 tokens of `[initial_state | x]`.

    Sums are in f64 where x or weight is, and in f32 otherwise. Raises ValueError as `check_inputs`.
    """
    check_inputs(x, weight, initial_state)
    accumulate = sums_in(x, weight)
    # Widened once, so that what the taps and the final state send back to a token is added before it is rounded.
    tokens = jnp.concatenate([initial_state, x], axis=1).astype(accumulate)
    y = taps(tokens, weight.astype(accumulate))
    return y.astype(x.dtype), tokens[:, x.shape[1] :].astype(x.dtype)


def taps(tokens: Float[Array, "B N D"], weight: Float[Array, "D W"]) -> Float[Array, "B _ D"]:
    """The convolution of N tokens, of which the first W - 1 have no output of their own."""
    width = weight.shape[1]
    outputs = tokens.shape[1] - (width - 1)
    return functools.reduce(operator.add, (weight[:, j] * tokens[:, j : j + outputs] for j in range(width)))


def sums_in(x: Float[Array, "..."], weight: Float[Array, "..."]) -> jnp.dtype:
    """The dtype that products are added in."""
    return accumulation_dtype(jnp.promote_types(x.dtype, weight.dtype))


def check_inputs(x: Array, weight: Array, initial_state: Array) -> None:
    """Raise ValueError unless `x [B, T, D]`, `weight [D, W]` and `initial_state [B, W-1, D]` fit together, the last in
    the dtype of x: it holds tokens, and the final state of one call is the initial state of the next.
    """
    if x.ndim != 3 or weight.ndim != 2 or weight.shape[0] != x.shape[2] or not weight.size:
        raise ValueError(f"x must be [B, T, D] and weight [D, W], D and W at least 1; got {x.shape} and {weight.shape}")
    if not all(jnp.issubdtype(array.dtype, jnp.floating) for array in (x, weight)):
        raise ValueError(f"x and weight must be floating point; got {x.dtype} and {weight.dtype}")
    shape = (x.shape[0], weight.shape[1] - 1, x.shape[2])
    if initial_state.shape != shape:
        raise ValueError(
            f"initial_state must hold the W - 1 tokens before x, {shape} with x {x.shape} and weight {weight.shape}; "
            f"got {initial_state.shape}"
        )
    if initial_state.dtype != x.dtype:
        raise ValueError(
            f"initial_state holds tokens and must have the dtype of x, {x.dtype}; got {initial_state.dtype}: cast it"
        )
