"""One fault in one implementation, put through the public check in one regime."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import QUANTITIES
from parity.faults.fault import LEAST, Fault, NotApplicable
from parity.faults.kills import Kill
from parity.matrix import Case, Item
from parity.precision import DTYPES
from parity.problem import Problem
from parity.verdict import Verdict, judge

RANKS = 4  # of a context-parallel implementation of somebody else's, where the fault does not ask for a number


@dataclass(frozen=True)
class Planting:
    """`fault` in `implementation`, or in the one that it is written for where that is None."""

    fault: Fault
    regime: str
    implementation: Implementation | None = None

    @property
    def name(self) -> str:
        planted = f"{self.implementation.name}_with_{self.fault.name}" if self.implementation else self.fault.name
        return f"{planted}-{self.dtype}-{self.regime}-{self.fault.shape.name}"

    @property
    def dtype(self) -> Dtype:
        """That of the fault; a structural fault is also seen in a coarser one, where its own is not claimed."""
        if self.implementation is None or self.fault.kind == "precision":
            return self.fault.dtype
        coarser = DTYPES[DTYPES.index(self.fault.dtype) :]
        return next((dtype for dtype in coarser if dtype in self.implementation.arithmetic), self.fault.dtype)

    @property
    def margin(self) -> float:
        return self.fault.margin if self.dtype == self.fault.dtype else min(LEAST, self.fault.margin)

    @property
    def ranks(self) -> int:
        elsewhere = self.implementation is not None and self.implementation.context_parallel
        return RANKS if elsewhere and self.fault.ranks == 1 else self.fault.ranks

    def case(self) -> Case:
        """Raises NotApplicable where the implementation cannot have the fault, or does not claim what it needs."""
        fault = self.fault
        problem = Problem(self.regime, fault.shape, self.dtype, packing=fault.packing)
        if self.implementation is None:
            return Case(fault.implementation, problem, fault.ranks)
        if fault.kind == "precision" and self.implementation.arithmetic.get(self.dtype, _claim(fault)) != _claim(fault):
            raise NotApplicable(f"it claims no more than {self.implementation.arithmetic[self.dtype]} arithmetic")
        case = Case(fault.on(self.implementation), problem, self.ranks)
        for quantity in fault.must_fail:
            reason = Item(case, 0, quantity).not_applicable()
            if reason:
                raise NotApplicable(reason)
        return case


def _claim(fault: Fault) -> str:
    return "f32" if fault.dtype == "bf16" else fault.dtype


def plantings(faults: Iterable[Fault], implementations: Sequence[Implementation] = ()) -> list[Planting]:
    """Every regime of every fault, in the implementation that it is written for, or in each of `implementations`."""
    return [
        Planting(fault, regime, implementation)
        for implementation in implementations or (None,)
        for fault in faults
        for regime in fault.regimes
        if implementation is None or fault.wrap is not None
    ]


def check(planting: Planting) -> Kill:
    """What was measured; it is killed where the fault was caught as it says."""
    fault = planting.fault
    try:
        case = planting.case()
    except NotApplicable as reason:
        return _kill(planting, not_applicable=str(reason))
    verdict = judge(case)
    measured = [quantity for quantity in QUANTITIES if (0, quantity) in verdict.findings]
    complaints = [complaint for quantity in fault.must_fail for complaint in _survivals(planting, verdict, quantity)]
    wrong = [q for q in fault.right if not all(verdict.findings[rank, q].passes for rank in range(case.ranks))]
    complaints += [f"{quantity} should be right and is not" for quantity in wrong]
    return _kill(
        planting,
        units={quantity: verdict.worst_units(quantity) for quantity in measured},
        limits={quantity: verdict.findings[0, quantity].limit for quantity in measured},
        killed=not complaints,
        complaints=complaints,
    )


def _survivals(planting: Planting, verdict: Verdict, quantity: str) -> list[str]:
    """Where the fault is not seen in `quantity` as it should be."""
    fault, ranks = planting.fault, verdict.case.ranks
    findings = [verdict.findings[rank, quantity] for rank in range(ranks)]
    failures = {finding.failure for finding in findings if finding.failure}
    if failures and fault.kind != "null":
        return [f"{quantity} could not be measured, which proves nothing: {failure}" for failure in failures]
    shares = [math.inf if finding.failure else finding.worst_units / finding.limit for finding in findings]
    if ranks != fault.ranks:  # on more ranks than it is written for, it need not be seen on all of them
        return [] if max(shares) >= planting.margin else [f"{quantity} is off by {max(shares):.3g} limits at most"]
    last = ranks - 1 if fault.last_bad_rank is None else fault.last_bad_rank
    complaints = []
    for rank, share in enumerate(shares):
        if fault.first_bad_rank <= rank <= last:
            if share < planting.margin:
                complaints.append(f"{quantity} of rank {rank} is off by {share:.3g} limits, {planting.margin:g} wanted")
        elif not share <= 1:
            complaints.append(f"{quantity} of rank {rank} should be right and is off by {share:.3g} limits")
    return complaints


def _kill(
    planting: Planting,
    *,
    units: dict[str, float] | None = None,
    limits: dict[str, float] | None = None,
    killed: bool = False,
    not_applicable: str | None = None,
    complaints: Sequence[str] = (),
) -> Kill:
    fault = planting.fault
    return Kill(
        fault.name,
        fault.cause,
        fault.kind,
        planting.implementation.name if planting.implementation else "",
        planting.dtype,
        planting.regime,
        planting.ranks,
        fault.quantity,
        planting.margin,
        units or {},
        limits or {},
        killed,
        not_applicable,
        list(complaints),
    )
