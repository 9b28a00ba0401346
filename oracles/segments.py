"""Documents packed into one row: where the state, and the window of a convolution, begin anew.

`segment_ids [..., T]` number the documents of a row. It is the change of an id that counts, so that an id may come
again, and a document of no tokens is one whose id is absent. What is known before token 0 belongs to its document.
"""

import numpy as np
from jaxtyping import Bool, Int


def starts(segment_ids: Int[np.ndarray, "*B T"] | None, shape: tuple[int, ...]) -> Bool[np.ndarray, "*B T"]:
    """Whether a token is the first of its document, token 0 excepted; of `shape`, and nowhere where there are no ids.

    Raises ValueError where there is not one id for each token.
    """
    if segment_ids is None:
        return np.zeros(shape, dtype=bool)
    if segment_ids.shape != shape:
        raise ValueError(f"segment_ids must hold an integer for each token, {shape}; got {segment_ids.shape}")
    changes = segment_ids[..., 1:] != segment_ids[..., :-1]
    return np.concatenate([np.zeros((*shape[:-1], 1), dtype=bool), changes], axis=-1)[..., : shape[-1]]


def numbered(segment_ids: Int[np.ndarray, "*B T"] | None, shape: tuple[int, ...]) -> Int[np.ndarray, "*B T"]:
    """The documents of a row by number, 0 first and each by one more. Raises as `starts`."""
    return np.cumsum(starts(segment_ids, shape), axis=-1)
