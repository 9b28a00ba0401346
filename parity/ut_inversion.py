"""The UT inversion as it is put to the test: the matrices of every regime, and two measures of an inverse of them.

In units, against the oracle and its kappa; and by both residuals, which need no oracle. An inverse may have a small
residual on one side and not on the other (Du Croz and Higham, "Stability of methods for matrix inversion", 1992), and
the chunked form multiplies T on both.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from implementations.contract import Dtype
from implementations.pallas.inversion import inversion
from implementations.ut_inversion.ladder import ladder
from implementations.ut_inversion.products import bf16x3, full
from implementations.ut_inversion.substitution import substitution
from oracles.conditioning import rms_response
from oracles.stream import Stream
from oracles.ut_inversion import float64
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, round_to
from parity.problem import Problem
from parity.shapes import Shape
from parity.unit import units
from parity.x64 import x64

Inverse = Callable[[jax.Array], jax.Array]

# Two numbers of bf16 hold 16 bits of an f32 operand.
BF16X3 = 2.0**-17


class Claim(NamedTuple):
    """An inverse, the dtype that it is asked in, and the unit roundoff that it claims there."""

    inverse: Inverse
    dtype: Dtype
    u: float


_IN_FULL: dict[str, Inverse] = {
    "substitution": substitution,
    "ladder": ladder,
    "pallas": partial(inversion, product=full),
}
_DTYPES: tuple[Dtype, ...] = ("f64", "f32")
CLAIMS = {
    f"{name}-{dtype}": Claim(inverse, dtype, UNIT_ROUNDOFF[dtype])
    for name, inverse in _IN_FULL.items()
    for dtype in _DTYPES
} | {
    "ladder_bf16x3-f32": Claim(partial(ladder, product=bf16x3), "f32", BF16X3),
    "pallas_bf16x3-f32": Claim(inversion, "f32", BF16X3),
}


def matrices(regime: str, shape: Shape, dtype: Dtype) -> tuple[np.ndarray, np.ndarray]:
    """S of the first chunk of every row and head, `[N, C, C]`, and a cotangent, both rounded to `dtype`."""
    values = {name: x[:, : shape.chunk_size] for name, x in Problem(regime, shape, "f64").arguments.items()}
    k = np.moveaxis(np.repeat(values["k"], shape.Hv // shape.Hk, axis=2), 2, 1)
    g, beta = np.moveaxis(values["g"], 2, 1), np.moveaxis(values["beta"], 2, 1)
    S = float64.ut_matrix(k, g, beta).reshape(-1, shape.chunk_size, shape.chunk_size)
    dT = Stream(f"ut inversion/{regime}").normal("dT", *S.shape)
    return round_to(S, dtype), round_to(dT, dtype)


def truth(S: np.ndarray, dT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T and dS, in float64."""
    T = float64.inverse(S)
    return T, float64.adjoint(T, dT)


def in_units(claim: Claim, regime: str, shape: Shape) -> dict[str, np.ndarray]:
    """Units of T and of dS, a matrix a block."""
    given = matrices(regime, shape, claim.dtype)
    exact = tuple(x.astype(np.float64) for x in given)
    want = truth(*exact)
    kappa = rms_response(truth, exact, name=f"ut inversion/{regime}", result=want)
    found = zip(("T", "dS"), _answers(claim, *given), want, kappa, strict=True)
    floor = SMALLEST_NORMAL[claim.dtype]
    return {name: units(*map(as_blocks, arrays), u_c=claim.u, u_out=claim.u, floor=floor) for name, *arrays in found}


def residuals(claim: Claim, regime: str, shape: Shape) -> dict[str, float]:
    """`(I + S) T - I` and `T (I + S) - I`, by rms, as multiples of `u |I + S| |T|` and `u |T| |I + S|`: the worst."""
    S, dT = matrices(regime, shape, claim.dtype)
    wide = np.longdouble if claim.dtype == "f64" else np.float64  # where there is one, 11 bits more than f64
    T = _answers(claim, S, dT)[0].astype(wide)
    L = np.eye(S.shape[-1]) + np.tril(S, -1).astype(wide)
    return {
        side: float(max(found) / claim.u) for side, found in (("left", _relative(L, T)), ("right", _relative(T, L)))
    }


def as_blocks(x: np.ndarray) -> np.ndarray:
    """A matrix is one block of the unit: `[N, 1, 1, C C]`."""
    return x.reshape(len(x), 1, 1, -1).astype(np.float64)


def _relative(a: np.ndarray, b: np.ndarray) -> Iterator[float]:
    for x, y in zip(a, b, strict=True):
        residual, scale = x @ y - np.eye(len(x)), np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
        yield np.sqrt(np.mean(residual**2) / np.mean(scale**2))


def _answers(claim: Claim, S: np.ndarray, dT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T, and dS where it is asked for: below the diagonal."""
    with x64(claim.dtype == "f64"):
        T, pullback = jax.vjp(jax.jit(claim.inverse), jnp.asarray(S))
        return np.asarray(T), np.tril(np.asarray(pullback(jnp.asarray(dT))[0]), -1)
