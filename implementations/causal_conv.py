"""The causal depthwise convolution in front of the gated delta rule (`causal_conv1d`; in Qwen3-Next W = 4).

Each channel is filtered on its own, and no token sees a later one::

    y_t = sum_j weight[:, j] x_{t-(W-1)+j}

The W - 1 tokens before token 0 are `initial_state`, the last of its rows just before token 0. There is no activation:
SiLU belongs to the layer.
"""

import functools
import operator

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from implementations.arithmetic import accumulation_dtype
from implementations.segments import changes, check_segment_ids, numbered


def causal_conv(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`(y, final_state)` in the dtype of x; `final_state` is the last W - 1 tokens of `[initial_state | x]`.

    With `segment_ids` tokens of other documents count as 0 (`implementations.segments`): for an output those of another
    than its own, and in the final state those of another than the last token's.
    Sums are in f64 where x or weight is, and in f32 otherwise. Raises ValueError as `check_inputs`.
    """
    check_inputs(x, weight, initial_state, segment_ids)
    accumulate = sums_in(x, weight)
    # Widened once, so that what the taps and the final state send back to a token is added before it is rounded.
    tokens = jnp.concatenate([initial_state, x], axis=1).astype(accumulate)
    halo = weight.shape[1] - 1
    before = None if segment_ids is None else jnp.repeat(segment_ids[:, :1], halo, axis=1)
    document = documents(before, segment_ids) if x.shape[1] else None
    y = taps(tokens, weight.astype(accumulate), document)
    return y.astype(x.dtype), of_last_document(tokens[:, x.shape[1] :], document).astype(x.dtype)


def taps(
    tokens: Float[Array, "B N D"], weight: Float[Array, "D W"], document: Int[Array, "B N"] | None = None
) -> Float[Array, "B _ D"]:
    """The convolution of N tokens, of which the first W - 1 have no output of their own; `document` as `documents`."""
    width = weight.shape[1]
    outputs = tokens.shape[1] - (width - 1)

    def read(j: int) -> Array:
        x = tokens[:, j : j + outputs]
        if document is None:
            return x
        return jnp.where((document[:, j : j + outputs] == document[:, width - 1 :])[..., None], x, 0)

    return functools.reduce(operator.add, (weight[:, j] * read(j) for j in range(width)))


def documents(before: Int[Array, "B _"] | None, segment_ids: Int[Array, "B T"] | None) -> Int[Array, "B N"] | None:
    """The documents of the tokens before and of these, by number; None where there are no ids."""
    if before is None or segment_ids is None:
        return None
    return numbered(changes(jnp.concatenate([before, segment_ids], axis=1)))


def of_last_document(last: Float[Array, "B _ D"], document: Int[Array, "B N"] | None) -> Float[Array, "B _ D"]:
    """The last tokens, those of another document than the very last one as 0."""
    if document is None:
        return last
    return jnp.where((document[:, document.shape[1] - last.shape[1] :] == document[:, -1:])[..., None], last, 0)


def sums_in(x: Float[Array, "..."], weight: Float[Array, "..."]) -> jnp.dtype:
    """The dtype that products are added in."""
    return accumulation_dtype(jnp.promote_types(x.dtype, weight.dtype))


def check_inputs(x: Array, weight: Array, initial_state: Array, segment_ids: Array | None = None) -> None:
    """Raise ValueError unless `x [B, T, D]`, `weight [D, W]`, `initial_state [B, W-1, D]` and `segment_ids [B, T]` fit
    together, the state in the dtype of x: it holds tokens, and the final state of one call is the initial state of the
    next.
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
    check_segment_ids(segment_ids, *x.shape[:2])
