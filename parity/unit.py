"""The unit: how wrong a result is, in multiples of what its arithmetic may cost.

Per batch row, head and block of 64 tokens, so that one bad token is not diluted by a million good ones::

    units = rms(x - x*) / (u_c kappa + u_out rms(x*))

`x*` is the truth, `kappa` the rms response of the truth to relative perturbations of every input, `u_c` the unit
roundoff of the arithmetic claimed and `u_out` that of the output. Where both terms are 0 the claim is equality.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

BLOCK = 64


def units(
    got: Float[np.ndarray, "B T H size"],
    want: Float[np.ndarray, "B T H size"],
    kappa: Float[np.ndarray, "B T H size"],
    *,
    u_c: float,
    u_out: float,
    floor: float,
    block: int = BLOCK,
) -> Float[np.ndarray, "B blocks H"]:
    """Units per block of `block` tokens; infinite where `got` is not finite, or differs where both terms are 0.

    `floor` is added to a scale that is not 0: the smallest normal number of the arithmetic, below which it promises
    nothing. Raises ValueError where the shapes differ (nothing is broadcast) or where `want` or `kappa` is not finite.
    """
    if not got.shape == want.shape == kappa.shape:
        raise ValueError(f"got {got.shape}, want {want.shape} and kappa {kappa.shape} must have one shape")
    if not (np.isfinite(want).all() and np.isfinite(kappa).all()):
        raise ValueError("the truth and its kappa must be finite")
    with np.errstate(over="ignore"):
        error = got - want
    finite = np.isfinite(error)  # nor is it where the difference of two huge numbers overflows
    found = in_units(np.where(finite, error, 0.0), want, kappa, u_c=u_c, u_out=u_out, floor=floor, block=block)
    return np.where(_blocks(~finite, np.any, block), np.inf, found)


def in_units(
    error: Float[np.ndarray, "B T H size"],
    want: Float[np.ndarray, "B T H size"],
    kappa: Float[np.ndarray, "B T H size"],
    *,
    u_c: float,
    u_out: float,
    floor: float,
    block: int = BLOCK,
) -> Float[np.ndarray, "B blocks H"]:
    """The same for an error that is known itself, perhaps smaller than one ulp of `want`."""
    scale = u_c * block_rms(kappa, block) + u_out * block_rms(want, block)
    # Whether a term is 0 is asked of the elements: a product with u, or an rms, may underflow.
    inexact = ((u_c > 0) & _blocks(kappa != 0, np.any, block)) | ((u_out > 0) & _blocks(want != 0, np.any, block))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = block_rms(error, block) / (scale + floor)
    return np.where(inexact, found, np.where(_blocks(error != 0, np.any, block), np.inf, 0.0))


def block_rms(x: Float[np.ndarray, "B T H size"], block: int = BLOCK) -> Float[np.ndarray, "B blocks H"]:
    """The rms of each block, scaled by its largest element so that no square underflows or overflows."""
    largest = _blocks(np.abs(x), np.max, block)
    per_token = np.repeat(largest, block, axis=1)[:, : x.shape[1], :, None]
    scaled = x / np.where(per_token > 0, per_token, 1.0)
    return largest * np.sqrt(_blocks(scaled * scaled, np.mean, block))


def _blocks(x: np.ndarray, reduce: Callable[..., np.ndarray], block: int) -> np.ndarray:
    """Reduce each block of tokens and the last axis; the last block may be short."""
    starts = range(0, x.shape[1], block)
    return np.stack([reduce(x[:, start : start + block], axis=(1, 3)) for start in starts], axis=1)
