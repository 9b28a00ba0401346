"""Affine maps of the state, which ranks exchange: they compose associatively, and composing is applying in turn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from implementations.context_parallel import affine
from implementations.contract import Dtype
from oracles.affine_composition import float64
from oracles.conditioning import rms_response
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, round_to
from parity.properties.examples import Example
from parity.properties.judge import Finding, apart
from parity.properties.results import Result
from parity.tolerances.limits import limits

Pair = tuple[np.ndarray, np.ndarray]
Compose = Callable[[Pair, Pair], Pair]


@dataclass(frozen=True)
class Composer:
    """`compose(later, earlier)` of maps `(A [K, K], B [K, V])` in one dtype: a subject of the properties below."""

    implementation: str
    compose: Compose
    dtype: Dtype
    compiles: bool
    context_parallel: bool = False
    not_claimed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.implementation}-{self.dtype}"


_compiled = jax.jit(affine.compose)


def _affine(dtype: Dtype, later: Pair, earlier: Pair) -> Pair:
    with jax.enable_x64(dtype == "f64"):
        A, B = _compiled(later, earlier)
        return np.asarray(A), np.asarray(B)


COMPOSERS = (
    Composer("float64_oracle", float64.compose, "f64", compiles=False),
    Composer("affine", partial(_affine, "f64"), "f64", compiles=True),
    Composer("affine", partial(_affine, "f32"), "f32", compiles=True),
)


def associativity(subject: Composer, example: Example) -> Iterator[Finding]:
    """`(m3 m2) m1 = m3 (m2 m1)`, for the maps of three stretches of tokens."""
    first, second, third = _maps(subject, example, 3)
    compose = subject.compose
    left, right = compose(compose(third, second), first), compose(third, compose(second, first))
    return _same(subject, (first, second, third), left, right)


def identity(subject: Composer, example: Example) -> Iterator[Finding]:
    """The map of no token changes nothing, before and behind another: bitwise."""
    (given,) = _maps(subject, example, 1)
    A, B = given
    nothing = np.eye(len(A), dtype=A.dtype), np.zeros_like(B)
    for where, found in (
        ("before", subject.compose(given, nothing)),
        ("behind", subject.compose(nothing, given)),
    ):
        for name, got, want in zip("AB", found, given, strict=True):
            units = 0.0 if np.array_equal(got, want) else np.inf
            yield Finding(f"{name} with the identity {where} it", units, limits().base[subject.dtype].units)


def _maps(subject: Composer, example: Example, count: int) -> list[Pair]:
    """The maps of `count` stretches of one head, `cut` tokens long but for the last; a stretch may be repeated."""
    x, cut = example.arguments("f64"), example.sizes.cut
    k, v, g, beta = (x[name][0, :, 0] for name in ("k", "v", "g", "beta"))
    stretches = [slice(0, cut), slice(cut, None), slice(cut // 2, None)][:count]
    maps = [float64.transition(k[s], v[s], g[s], beta[s]) for s in stretches]
    return [(_normal(A, subject.dtype), _normal(B, subject.dtype)) for A, B in maps]


def _normal(x: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Rounded, and no number below the smallest normal one: there XLA returns zero on a CPU."""
    rounded = round_to(x, dtype)
    return np.where(np.abs(rounded) < SMALLEST_NORMAL[dtype], 0, rounded).astype(rounded.dtype)


def _same(subject: Composer, given: tuple[Pair, ...], left: Pair, right: Pair) -> Iterator[Finding]:
    def composed(*flat: np.ndarray) -> tuple[np.ndarray, ...]:
        first, second, third = zip(flat[::2], flat[1::2], strict=True)
        return float64.compose(third, float64.compose(second, first))

    flat = tuple(x.astype(np.float64) for pair in given for x in pair)
    want, kappa = composed(*flat), rms_response(composed, flat, name="associativity")
    u, floor = UNIT_ROUNDOFF[subject.dtype], SMALLEST_NORMAL[subject.dtype]
    for i, name in enumerate("AB"):
        truth = _as_one_block(want[i]), _as_one_block(kappa[i])
        one, other = (Result(_as_one_block(got[i]), *truth, u_c=u, u_out=u, floor=floor) for got in (left, right))
        yield Finding(name, apart((1.0, one), (-1.0, other)), limits().base[subject.dtype].units)


def _as_one_block(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).reshape(1, 1, 1, -1)
