"""Judge a case: every quantity of every rank, in units, against its limit."""

from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np

from implementations.contract import Dtype
from oracles.gated_delta_rule import QUANTITIES
from parity.matrix import Case
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, dtype_of, round_to
from parity.run import REPLICATED, Answer, run
from parity.tolerances.limits import Row, resolve
from parity.tolerances.platforms import current
from parity.truth import Truth, per_token, truth
from parity.unit import BLOCK, units


@dataclass(frozen=True)
class Worst:
    """The element that is furthest off in the worst block: `[row, token, head, ...]`, the token counted over all ranks;
    of a state, `[row, head, k, v]`.
    """

    index: tuple[int, ...]
    got: float
    want: float


@dataclass(frozen=True)
class Finding:
    """One quantity of one rank. `failure` says why nothing could be measured; then units are infinite.

    `limit_row`: the row of the table of limits that decided.
    """

    rank: int
    quantity: str
    units: np.ndarray  # [B, blocks, H]
    limit: float
    limit_row: str
    relative_error: float
    worst: Worst | None
    failure: str | None = None

    @property
    def worst_units(self) -> float:
        return float(self.units.max())

    @property
    def passes(self) -> bool:
        return self.failure is None and self.worst_units <= self.limit


@dataclass(frozen=True)
class Verdict:
    """All findings of a case, by rank and quantity."""

    case: Case
    findings: dict[tuple[int, str], Finding]

    @property
    def passes(self) -> bool:
        return all(finding.passes for finding in self.findings.values())

    def worst_units(self, quantity: str) -> float:
        return max(f.worst_units for (_, name), f in self.findings.items() if name == quantity)


@cache
def judge(case: Case) -> Verdict:
    """Run the case once, whatever is then asked of it. Raises MeshTooLarge and UncertifiedOracle."""
    return judge_answer(case, run(case.implementation, case.problem, case.over))


def judge_answer(case: Case, answer: Answer) -> Verdict:
    """The verdict on an `answer` that the case has given. Raises UncertifiedOracle."""
    wanted = truth(case.problem)
    asked = [q for q in QUANTITIES if q in answer.pieces or q in answer.failures]
    found = {quantity: _find(case, wanted, answer, quantity) for quantity in asked}
    return Verdict(case, {(rank, q): found[q][rank] for rank in range(case.ranks) for q in asked})


def _find(case: Case, wanted: Truth, answer: Answer, quantity: str) -> list[Finding]:
    """Of one quantity, by rank."""
    allowed = resolve(
        _arithmetic(case),
        implementation=case.implementation.name,
        dtype=case.problem.dtype,
        quantity=quantity,
        regime=case.problem.regime,
        platform=current(),
    )
    if quantity in answer.failures:
        why, infinite = answer.failures[quantity], np.full((1, 1, 1), np.inf)
        return [
            Finding(rank, quantity, infinite, allowed.units, allowed.name, np.inf, None, why)
            for rank in range(case.ranks)
        ]
    returned = [answers[quantity] for answers in (answer.pieces, answer.in_vjp) if quantity in answers]
    found = [_measure(case, wanted, allowed, quantity, pieces) for pieces in returned]
    return [max((x[rank] for x in found), key=lambda finding: finding.worst_units) for rank in range(case.ranks)]


def _measure(case: Case, wanted: Truth, allowed: Row, quantity: str, pieces: list[np.ndarray]) -> list[Finding]:
    """By rank. A block is of one rank's tokens: all ranks are measured at once, as rows of a batch."""
    arithmetic, output = _arithmetic(case), dtype_of(quantity, case.problem.dtype)
    got = np.concatenate([per_token(quantity, piece.astype(np.float64)) for piece in pieces])
    want, kappa = (_by_rank(x[quantity], len(pieces), quantity) for x in (wanted.values, wanted.kappa))
    # Sums of small integers are exact in f32 and f64, not in bf16: who computes in that is held to the unit.
    exact = case.problem.is_exact and arithmetic != "bf16"
    if exact:
        want, kappa = round_to(want, output).astype(np.float64), np.zeros_like(kappa)
    found = units(
        got,
        want,
        kappa,
        u_c=UNIT_ROUNDOFF[arithmetic],
        u_out=0.0 if exact else UNIT_ROUNDOFF[output],
        floor=SMALLEST_NORMAL[arithmetic],
    )
    findings = []
    for rank, piece in enumerate(pieces):
        x, truth_of_x, in_units = (np.split(of_all, len(pieces))[rank] for of_all in (got, want, found))
        worst = _worst(piece, x, truth_of_x, in_units, quantity, first=rank * got.shape[1])
        error = _relative_error(x, truth_of_x)
        findings.append(Finding(rank, quantity, in_units, allowed.units, allowed.name, error, worst))
    return findings


def _by_rank(x: np.ndarray, ranks: int, quantity: str) -> np.ndarray:
    """What each rank should hold, `[ranks B, T / ranks, H, size]`: its own tokens, or the whole state."""
    if quantity in REPLICATED:
        return np.concatenate([x] * ranks)
    return np.concatenate(np.split(x, ranks, axis=1))


def _arithmetic(case: Case) -> Dtype:
    """What the implementation claims for the problem's dtype."""
    return cast(Dtype, case.implementation.arithmetic[case.problem.dtype])


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """Of the rank's whole piece, in the Frobenius norm. Printed for people; decides nothing."""
    if not np.isfinite(got).all():
        return float("inf")
    with np.errstate(over="ignore"):
        error, norm = np.linalg.norm(got - want), np.linalg.norm(want)
    return float(error / norm) if norm else (float("inf") if error else 0.0)


def _worst(piece: np.ndarray, got: np.ndarray, want: np.ndarray, found: np.ndarray, quantity: str, first: int) -> Worst:
    row, block, head = (int(i) for i in np.unravel_index(np.argmax(found), found.shape))
    tokens = slice(block * BLOCK, (block + 1) * BLOCK)
    off = np.abs(got[row, tokens, head] - want[row, tokens, head])
    place = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off)), off.shape)
    token, element = (int(i) for i in place)
    token += block * BLOCK
    if quantity in ("final_state", "dh0"):
        index = (row, head, *(int(i) for i in np.unravel_index(element, piece.shape[2:])))
    else:
        index = (row, first + token, head, *((element,) if piece.ndim == 4 else ()))
    return Worst(index, float(got[row, token, head, element]), float(want[row, token, head, element]))
