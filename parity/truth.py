"""What the oracles say of a problem: every quantity, its kappa, and a rigorous bound of the oracle's own error."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from implementations.contract import Dtype
from oracles.cache import Cache, digest
from oracles.gated_delta_rule import QUANTITIES
from oracles.reference import reference
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.problem import Problem
from parity.tolerances.limits import limits
from parity.unit import in_units

CACHE = Cache(Path(__file__).parent.parent / ".cache" / "oracles")
STATES = ("final_state", "dh0")

# The float64 oracle's certified error, as a share of the limit: it must not decide a verdict.
CERTIFIED_SHARE: dict[Dtype, float] = {"f64": 0.25, "f32": 1e-3, "bf16": 1e-3}


class UncertifiedOracle(Exception):
    """The float64 oracle is further from the truth than its certificate may be."""


@dataclass(frozen=True)
class Certificate:
    """`row`, `key_head`: the sample; `bits`: what its balls took; `units[quantity]`: the oracle's worst error there."""

    row: int
    key_head: int
    bits: int
    units: dict[str, float]


@dataclass(frozen=True)
class Truth:
    """`values` and `kappa` by quantity, float64: `[B, T, H, size]` as in `per_token`."""

    values: dict[str, np.ndarray]
    kappa: dict[str, np.ndarray]
    certificate: Certificate


def per_token(quantity: str, x: np.ndarray) -> np.ndarray:
    """Any quantity as `[B, T, H, size]`: a gate has size 1, a state is one token of size `K V`."""
    if quantity in STATES:
        return x.reshape(x.shape[0], 1, x.shape[1], -1)
    return x.reshape(*x.shape[:3], -1)


@lru_cache(maxsize=16)
def truth(problem: Problem) -> Truth:
    """The truth of `problem`, from the disk cache where it is there.

    Raises UncertifiedOracle where the bound is not far below the limit; such an oracle judges nobody.
    """
    arguments = {name: x.astype(np.float64) for name, x in problem.arguments.items()}
    scale, chunk_size, documents = problem.shape.scale, problem.shape.chunk_size, problem.segment_ids
    ids = {} if documents is None else {"segment_ids": documents}
    stored = CACHE.fetch(
        digest(arguments | ids, f"scale={scale} chunk_size={chunk_size}", problem.name),
        lambda: reference(arguments, scale=scale, chunk_size=chunk_size, name=problem.name, segment_ids=documents),
    )
    values = {quantity: stored[quantity] for quantity in QUANTITIES}
    kappa = {quantity: stored[f"kappa {quantity}"] for quantity in QUANTITIES}
    certificate = _certificate(problem, stored)
    _require_certified(problem, certificate)
    return Truth(
        {q: per_token(q, x) for q, x in values.items()},
        {q: per_token(q, x) for q, x in kappa.items()},
        certificate,
    )


def _certificate(problem: Problem, stored: dict[str, np.ndarray]) -> Certificate:
    row, key_head, bits = (int(x) for x in stored["sample"])
    group = problem.shape.Hv // problem.shape.Hk
    arithmetic = _strictest_arithmetic(problem)
    u = UNIT_ROUNDOFF[arithmetic]
    worst = {}
    for quantity in QUANTITIES:
        heads = [key_head] if quantity in ("dq", "dk") else slice(key_head * group, (key_head + 1) * group)
        want, kappa = (
            per_token(quantity, stored[name])[row : row + 1, :, heads] for name in (quantity, f"kappa {quantity}")
        )
        bound = per_token(quantity, stored[f"bound {quantity}"][None])
        worst[quantity] = float(in_units(bound, want, kappa, u_c=u, u_out=u, floor=SMALLEST_NORMAL[arithmetic]).max())
    return Certificate(row, key_head, bits, worst)


def _require_certified(problem: Problem, certificate: Certificate) -> None:
    arithmetic = _strictest_arithmetic(problem)
    over = {}
    for quantity, found in certificate.units.items():
        limit = limits().strictest(arithmetic, dtype=problem.dtype, quantity=quantity, regime=problem.regime)
        allowed = CERTIFIED_SHARE[arithmetic] * limit
        if not found <= allowed:  # NaN is over
            over[quantity] = found, allowed
    if over:
        quantity, (found, allowed) = max(over.items(), key=lambda entry: entry[1][0] / entry[1][1])
        raise UncertifiedOracle(
            f"{problem.name} in {problem.dtype}: the float64 oracle's {quantity} may be off by {found:.2e} units "
            f"(row {certificate.row}, key head {certificate.key_head}) where {allowed:.2e} is allowed; "
            f"no verdict can rest on it"
        )


def _strictest_arithmetic(problem: Problem) -> Dtype:
    """bf16 inputs may be computed on in f32, so that is what the oracle must be good enough for."""
    return "f64" if problem.dtype == "f64" else "f32"
