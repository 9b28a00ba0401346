"""Whether a failing result would pass if it claimed less: the algebra is right, the arithmetic is not what it says."""

from dataclasses import replace

from oracles.gated_delta_rule import QUANTITIES
from parity.matrix import Case
from parity.precision import DTYPES
from parity.run import run
from parity.verdict import Verdict, judge_answer

# Rounding to an arithmetic leaves errors of 0.1 units of it and more; what is off by less than this is better than it.
NOISE = 0.01


def read(verdict: Verdict) -> str:
    """One line that names the widest such arithmetic; empty where there is none, or where there are no numbers."""
    case = verdict.case
    if any(finding.failure for finding in verdict.findings.values()):
        return ""
    dtype = case.problem.dtype
    claimed = case.implementation.arithmetic[dtype]
    answer = run(case.implementation, case.problem, case.over)
    for narrower in DTYPES[DTYPES.index(claimed) + 1 :]:
        claim = replace(case.implementation, arithmetic={**case.implementation.arithmetic, dtype: narrower})
        supposed = judge_answer(Case(claim, case.problem, case.over), answer)
        worst = max(QUANTITIES, key=lambda q: supposed.worst_units(q) if (0, q) in supposed.findings else 0.0)
        units = supposed.worst_units(worst)
        if supposed.passes and units >= NOISE:
            return (
                f"    as accurate as {narrower} arithmetic: every quantity is within the limits of {narrower} "
                f"({units:.2g} of its units at worst, in {worst}), and {claimed} is claimed for {dtype} inputs"
            )
    return ""
