"""Which faults can be the cause of a failure: those that are worth running."""

from oracles.gated_delta_rule import OUTPUTS
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.fault import Fault
from parity.verdict import Verdict


def candidates(verdict: Verdict) -> list[Fault]:
    """The catalogue without what cannot be it: a fault between ranks where there is one rank, one between documents
    where a row is one document, and an edit that says of itself that it leaves right what is wrong here, or makes wrong
    what is right here. Wraps cost no compilation: all of them are worth it.
    """
    wrong = {q for (_, q), finding in verdict.findings.items() if not (finding.failure or finding.passes)}
    return [fault for fault in (*CATALOGUE, *NULL_MODELS) if _is_possible(fault, verdict, wrong)]


def _is_possible(fault: Fault, verdict: Verdict, wrong: set[str]) -> bool:
    if fault.ranks > 1 and verdict.case.ranks == 1:
        return False
    if fault.packing and not verdict.case.problem.packing:
        return False
    if fault.wrap:
        return True
    leaves_outputs_right = set(OUTPUTS) <= set(fault.right)
    outputs_are_right = all((0, q) in verdict.findings and q not in wrong for q in OUTPUTS)
    if leaves_outputs_right != outputs_are_right or wrong & set(fault.right):
        return False
    return _ranks_fit(fault, verdict)


def _ranks_fit(fault: Fault, verdict: Verdict) -> bool:
    """Whether the fault can be what makes `o` wrong on these ranks: one inside a chunk is on every rank."""
    bad = [rank for (rank, q), finding in verdict.findings.items() if q == "o" and not finding.passes]
    if fault.quantity != "o" or not bad:
        return True
    if fault.kind != "hand_over":
        return fault.kind not in ("chunk", "rule") or min(bad) == 0
    last = verdict.case.ranks - 1 if fault.last_bad_rank is None else fault.last_bad_rank
    return fault.first_bad_rank <= min(bad) and (max(bad) <= last or verdict.case.ranks != fault.ranks)
