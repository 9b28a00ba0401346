"""Which known mistake a failing result resembles: the fault catalogue, run on the failing problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from implementations.contract import Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS
from parity.diagnosis import planted
from parity.diagnosis.candidates import candidates
from parity.diagnosis.distance import Pieces, between, from_truth, results
from parity.faults.fault import Fault
from parity.matrix import Case
from parity.run import IN_VJP, run
from parity.unit import BLOCK
from parity.verdict import Verdict, judge

# How much nearer than the truth a fault must be, in every block that is wrong. Two codes of one mistake differ by the
# rounding of both, which in f64 is nearer by 1e3 and more; two mistakes that share 97 % of their error, in every
# quantity, rank, block, row and head, have not been found. bf16 leaves room for no more than this: an error of the
# size of the result is 256 units there, less where kappa is large.
NEARER = 30.0

# Where a number is rounded to fewer bits, two codes agree but for the few elements that lie between two neighbours and
# fall to either side: they share 96 % of the squared error or more, and other roundings share none. What a backward
# rounds depends on the code too much, so that where outputs are wrong they alone are compared.
NEARER_IN_ROUNDING = 5.0

# Two codes that are each within the limit of the same wrong function are within twice the limit of each other.
ROUNDING = 2.0

NAMED = 3

# The suite's own code as it is. Where that gives the failing result too, it is wrong itself, and every fault that is
# made of it has that in common with the failure.
NOTHING = Fault("nothing", "nothing is planted", "rule", "o", ("typical",), wrap=lambda implementation: implementation)

_searched: dict[str, str] = {}  # a compilation -> the case for which all of the catalogue was run
_fitted: dict[Implementation, list[Fault]] = {}  # what an implementation's earlier failures resembled


@dataclass(frozen=True)
class Resemblance:
    """`units`: how far the failing result is from the fault's, at worst; `oracle_units`: how far from the truth."""

    fault: Fault
    units: float
    oracle_units: float


@dataclass(frozen=True)
class Search:
    """What was found, best first, and how many faults were `compared` for it.

    `is_our_own`: whether the suite's own code gives the failing result; then the catalogue can tell nothing.
    """

    found: list[Resemblance]
    compared: int
    is_our_own: bool = False


def read(verdict: Verdict) -> str:
    """The faults that the failure resembles; empty where there is none.

    Those that an earlier failure of the implementation resembled are tried first; where they do not fit, all of the
    catalogue is, once for each compilation in this process.
    """
    case = verdict.case
    if all(finding.passes or finding.failure for finding in verdict.findings.values()):
        return ""  # nothing that was measured is wrong: there is nothing to resemble
    fitted = _fitted.setdefault(case.implementation, [])
    search = resembling(case, fitted)
    if search.is_our_own:
        return "    the suite's own code gives the same result: the catalogue, made of it, tells nothing"
    if search.found:
        return _told(search, "run on these inputs: what an earlier failure resembled")
    earlier = _searched.setdefault(case.compilation, case.name)
    if earlier != case.name:
        return f"    the fault catalogue was run for {earlier}, the first failing case of this compilation"
    search = resembling(case)
    fitted += [resemblance.fault for resemblance in search.found]
    return _told(search, "run on these inputs") if search.found else ""


def _told(search: Search, how: str) -> str:
    best, *others = search.found
    lines = [f"within {best.units:.2g} units of: {_named(best)}, where the oracle is {best.oracle_units:.2g} away"]
    lines += [f"    and {x.units:.2g} of: {_named(x)}" for x in others[: NAMED - 1]]
    if others:
        more = f" ({len(others) + 1} in all)" if len(others) >= NAMED else ""
        lines.append(f"these cannot be told apart on this problem{more}")
    count = f"{search.compared} known fault{'s' * (search.compared > 1)}"
    return "\n".join(f"    {line}" for line in [*lines, f"({count} {how})"])


def resembling(case: Case, faults: Sequence[Fault] | None = None) -> Search:
    """Those of `faults` that are as near to the failing result as rounding allows, or nearly so; best first.

    `faults`: all that can be the cause, where none are given. Only those are returned that are as near as the best one
    is: a fault that explains less is not the cause.
    """
    verdict = judge(case)
    faults = (NOTHING, *(candidates(verdict) if faults is None else faults))
    failing = results(run(case.implementation, case.problem, case.over))
    distances: dict[Fault, list[Distances]] = {fault: [] for fault in faults}
    compared = 0
    told_by_outputs: dict[Fault, list[Distances]] = {}
    outputs_are_wrong = any(not verdict.findings[0, q].failure and not _passes(verdict, q) for q in OUTPUTS)
    for names in (OUTPUTS, GRADIENTS):  # gradients of those whose outputs agree
        asked = {result: pieces for result, pieces in failing.items() if result.removesuffix(IN_VJP) in names}
        if not asked:
            continue
        answers = planted.answers(list(distances), case.problem, case.ranks, names)
        compared = compared or len(answers) - 1
        near = {fault: _distances(verdict, fault, asked, answer) for fault, answer in answers.items()}
        distances = {fault: [*distances[fault], found] for fault, found in near.items() if found is not None}
        if names == OUTPUTS and outputs_are_wrong:
            told_by_outputs = {fault: found for fault, found in distances.items() if fault.kind == "precision"}
            distances = {fault: found for fault, found in distances.items() if fault not in told_by_outputs}
    found = [
        Resemblance(fault, max(x.fault for x in xs), max(x.oracle for x in xs))
        for fault, xs in (distances | told_by_outputs).items()
    ]
    found = sorted((x for x in found if x.units <= x.oracle_units / _nearer(x.fault)), key=lambda x: x.units)
    limit = max(finding.limit for finding in verdict.findings.values())
    as_near = max(10 * found[0].units, ROUNDING * limit) if found else 0.0
    found = [x for x in found if x.units <= as_near]
    if any(x.fault is NOTHING for x in found):
        return Search([], compared, is_our_own=True)
    return Search(found, compared)


class Distances(NamedTuple):
    """The worst units from a fault, and from the oracle."""

    fault: float
    oracle: float


def _nearer(fault: Fault) -> float:
    return NEARER_IN_ROUNDING if fault.kind == "precision" else NEARER


def _passes(verdict: Verdict, quantity: str) -> bool:
    return all(finding.passes for (_, name), finding in verdict.findings.items() if name == quantity)


def _distances(
    verdict: Verdict, fault: Fault, failing: Mapping[str, Pieces], answer: Mapping[str, Pieces]
) -> Distances | None:
    """Over all of `failing`; None where the fault is not near in every block that is wrong, or not right in another."""
    worst = Distances(0.0, 0.0)
    for result, pieces in failing.items():
        quantity = result.removesuffix(IN_VJP)
        if any(mine.shape != theirs.shape for mine, theirs in zip(pieces, answer[quantity], strict=True)):
            return None
        of_fault = between(verdict.case, result, pieces, answer[quantity], BLOCK)
        of_truth = from_truth(verdict.case, result, pieces, BLOCK)
        rounding = ROUNDING * verdict.findings[0, quantity].limit
        allowed = np.where(np.isfinite(of_truth), np.maximum(rounding, of_truth / _nearer(fault)), 0.0)
        if not (of_fault <= allowed).all():
            return None
        worst = Distances(max(worst.fault, float(of_fault.max())), max(worst.oracle, float(of_truth.max())))
    return worst


def _named(resemblance: Resemblance) -> str:
    fault = resemblance.fault
    return f"{fault.cause} ({fault.name}{f', as in {fault.source}' if fault.source else ''})"
