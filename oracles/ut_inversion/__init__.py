"""The inversion inside the UT transform: `T = (I + S)^-1` for strictly lower triangular `S [C, C]`, and its adjoint.

Joffrain, Low, Quintana-Orti, van de Geijn, "Accumulating Householder transformations, revisited" (2006); Yang, Wang,
Zhang, Shen, Kim, "Parallelizing linear transformers with the delta rule over sequence length" (2024)::

    T  = (I + S)^-1                         unit lower triangular
    dS = strict_lower(-(T^T dT T^T))        only the entries that S is free to have

Four times: in float64, in mpmath, in balls and in rationals. They share this module's checks, and no arithmetic.
"""

import numpy as np


def check_strictly_lower(S: np.ndarray) -> None:
    """Raise ValueError unless `S [..., C, C]` is square and zero on and above its diagonal."""
    if S.ndim < 2 or S.shape[-1] != S.shape[-2]:
        raise ValueError(f"S must be square, [..., C, C]; got {S.shape}")
    outside = np.argwhere(np.triu(S) != 0)
    if len(outside):
        index = tuple(outside[0].tolist())
        raise ValueError(f"S must be strictly lower triangular; got S{list(index)} = {S[index]}")


def check_cotangent(shape: tuple[int, ...], dT: np.ndarray) -> None:
    """Raise ValueError unless the cotangent has the shape of `T`."""
    if dT.shape != shape:
        raise ValueError(f"dT must have the shape of T, {shape}; got {dT.shape}")
