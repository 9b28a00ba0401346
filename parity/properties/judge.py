"""How results are compared: in units, each result erring as much as the gate lets it, and no more.

A property says that a linear combination `sum c_i x_i` of results is zero. If each `x_i` is within its limit,

    rms(sum c_i x_i) <= limit * sum |c_i| unit_i        unit_i = u_c rms(kappa_i) + u_out rms(truth_i)

so the units of a property are the left side over the sum: two results that should be equal may differ by twice the
limit. What is paired with weights, `sum_i <w_i, x_i>`, is allowed `limit * sum |w_i| sqrt(n_i) unit_i` by the
inequality of Cauchy and Schwarz, n_i being the number of elements in the block. Truth and kappa come from the float64
oracle, on the arguments of that very run.
"""

from dataclasses import dataclass

import numpy as np

from parity.properties.results import Result
from parity.properties.subjects import DRAWN, Subject
from parity.tolerances.limits import resolve
from parity.tolerances.platforms import current
from parity.unit import BLOCK, block_rms


@dataclass(frozen=True)
class Finding:
    """How far `what` is from what it should be, in units, and how far it may be."""

    what: str
    units: float
    limit: float


def finding(subject: Subject, what: str, quantities: tuple[str, ...], units: float) -> Finding:
    """Held to the largest limit of `quantities`, which is what a sum of theirs may be off by in sums of their units."""
    return Finding(what, units, limit(subject, quantities))


def limit(subject: Subject, quantities: tuple[str, ...]) -> float:
    """The gate's own limit, the largest among `quantities`; rows for one regime do not match what is drawn."""
    return max(
        resolve(
            subject.arithmetic,
            implementation=subject.implementation.name,
            dtype=subject.dtype,
            quantity=quantity,
            regime=DRAWN,
            platform=current(),
        ).units
        for quantity in quantities
    )


def apart(*terms: tuple[float, Result]) -> float:
    """The units of `sum c x`, which should be zero: the worst block."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.sum([c * x.got for c, x in terms], axis=0)
    return _worst(error, np.sum([abs(c) * x.unit for c, x in terms], axis=0))


def _worst(error: np.ndarray, allowed: np.ndarray) -> float:
    if not np.isfinite(error).all():
        return np.inf
    found = block_rms(error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(found > 0, found / allowed, 0.0).max())


def bits_apart(x: np.ndarray, y: np.ndarray) -> float:
    """0 where all elements are equal, and infinite otherwise: NaN equals nothing."""
    return 0.0 if np.array_equal(x, y) else np.inf


@dataclass(frozen=True)
class Pair:
    """`<w, x>` and what it may be off by one unit of x, `[B, T or 1, H]`."""

    value: np.ndarray
    allowed: np.ndarray

    def __add__(self, other: "Pair") -> "Pair":
        return Pair(self.value + other.value, self.allowed + other.allowed)

    def __sub__(self, other: "Pair") -> "Pair":
        return Pair(self.value - other.value, self.allowed + other.allowed)

    def at(self, token: int) -> "Pair":
        return Pair(self.value[:, token : token + 1], self.allowed[:, token : token + 1])

    def by_group(self, key_heads: int) -> "Pair":
        """Summed over the value heads of each key head."""
        return Pair(*(x.reshape(*x.shape[:2], key_heads, -1).sum(axis=-1) for x in (self.value, self.allowed)))

    @property
    def units(self) -> float:
        """Of a pair that should be zero."""
        if not np.isfinite(self.value).all():
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(self.value != 0, np.abs(self.value) / self.allowed, 0.0).max())


def pair(weight: np.ndarray, x: Result, *, each_token: bool) -> Pair:
    """`<weight, x>` over the last axis, and over the tokens unless `each_token`. `weight` is `[B, T, H, size]`.

    One token's error is bounded by that of its whole block, for the limit says no more.
    """
    if x.got.shape[1] > BLOCK:
        raise ValueError(f"a pair is made for one block of {BLOCK} tokens; got {x.got.shape[1]}")
    axes = (3,) if each_token else (1, 3)
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.sum(weight * x.got, axis=axes)
    norm = np.sqrt(np.sum(weight * weight, axis=axes))
    if not each_token:
        value, norm = value[:, None], norm[:, None]
    return Pair(value, norm * np.sqrt(x.got.shape[1] * x.got.shape[3]) * x.unit)


def product(x: Result, y: Result) -> Pair:
    """`<x, y>` of two results: with errors dx and dy of theirs it is off by `<dx, y> + <x, dy>`."""
    of_x, of_y = pair(y.got, x, each_token=False), pair(x.got, y, each_token=False)
    return Pair(of_x.value, of_x.allowed + of_y.allowed)
