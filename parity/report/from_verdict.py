"""From a verdict to what is kept of it."""

from oracles.gated_delta_rule import QUANTITIES
from parity.report.failures import Failure, Measured
from parity.verdict import Verdict


def failure_of(verdict: Verdict, message: str) -> Failure:
    """The failing case of `verdict`, with the units of all its quantities, also of those that are right."""
    case = verdict.case
    return Failure(
        case=case.name,
        implementation=case.implementation.name,
        dtype=case.problem.dtype,
        regime=case.problem.regime,
        shape=case.problem.shape.name,
        ranks=case.ranks,
        tokens=case.problem.shape.T,
        chunk_size=case.problem.shape.chunk_size,
        message=message,
        quantities={q: _measured(verdict, q) for q in QUANTITIES if (0, q) in verdict.findings},
    )


def _measured(verdict: Verdict, quantity: str) -> Measured:
    findings = [verdict.findings[rank, quantity] for rank in range(verdict.case.ranks)]
    units = [finding.units.tolist() for finding in findings]
    first = findings[0]
    return Measured(first.limit, units, first.limit_row, first.failure)
