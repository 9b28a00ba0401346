"""Documents packed into one row: the state, and the window of the convolution, begin anew where the id changes.

`segment_ids [B, T]` number the documents. It is the change that counts: an id may come again, and a document of no
tokens is one whose id is absent. What is known before token 0 (an initial state) enters the document of token 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def starts(segment_ids: Int[Array, "B T"] | None) -> Bool[Array, "B T"] | None:
    """Whether a token is the first of a further document. None where there are no ids: a row is one document."""
    return None if segment_ids is None else changes(segment_ids)


def changes(segment_ids: Int[Array, "B T"], before: Int[Array, "B 1"] | None = None) -> Bool[Array, "B T"]:
    """Whether an id is another than the one before it; `before` is the one before the first, where there is one."""
    before = segment_ids[:, :1] if before is None else before
    return segment_ids != jnp.concatenate([before, segment_ids[:, :-1]], axis=1)


def numbered(first: Bool[Array, "*B T"]) -> Int[Array, "*B T"]:
    """The documents by number, from where they start: two tokens are of one document where their numbers are equal."""
    return jnp.cumsum(first.astype(jnp.int32), axis=-1)


def check_segment_ids(segment_ids: jax.Array | None, batch: int, tokens: int) -> None:
    """Raise ValueError unless `segment_ids` is None or an integer for each token."""
    if segment_ids is None:
        return
    known = hasattr(segment_ids, "shape") and hasattr(segment_ids, "dtype")
    if not known or segment_ids.shape != (batch, tokens) or not jnp.issubdtype(segment_ids.dtype, jnp.integer):
        got = f"{segment_ids.dtype}{list(segment_ids.shape)}" if known else f"{segment_ids!r}"
        raise ValueError(
            f"segment_ids must be an array of integers of shape {(batch, tokens)}, one for each token; got {got}"
        )
    check_fits("segment_ids", segment_ids)


def check_fits(what: str, numbers: Any) -> None:
    """Raise ValueError where NumPy integers are larger than jax has them: it would cut off bits, in silence."""
    if isinstance(numbers, np.ndarray) and not np.array_equal(
        numbers, numbers.astype(jax.dtypes.canonicalize_dtype(numbers.dtype))
    ):
        raise ValueError(
            f"{what} must fit into {jax.dtypes.canonicalize_dtype(numbers.dtype)}, to which jax cuts {numbers.dtype} "
            f"without x64; got up to {np.max(np.abs(numbers.astype(object)))}: number them anew"
        )
