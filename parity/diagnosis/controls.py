"""Who is right on the same inputs: the same code on one device and in f64, other code, and the oracle itself."""

from dataclasses import dataclass

import numpy as np

from implementations import Implementation
from implementations.chunked import CHUNKED
from implementations.contract import Dtype
from implementations.sequential import SEQUENTIAL
from oracles.gated_delta_rule import QUANTITIES
from parity.matrix import Case
from parity.problem import Problem
from parity.tpu.applicable import not_applicable_here
from parity.truth import truth
from parity.verdict import Verdict, judge


@dataclass(frozen=True)
class Widened(Problem):
    """The values of a problem after their rounding to `rounded`, in f64: nothing but the arithmetic differs."""

    rounded: Dtype = "f32"

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        narrow = Problem(self.regime, self.shape, self.rounded, self.seed, self.packing)
        return {name: x.astype(np.float64) for name, x in narrow.arguments.items()}


def read(verdict: Verdict) -> str:
    """A line for each control; one that cannot be had says why."""
    lines = [f"    {name}: {_judged(case)}" for name, case in _controls(verdict.case)]
    certificate = truth(verdict.case.problem).certificate
    worst = max(certificate.units, key=lambda quantity: certificate.units[quantity])
    lines.append(
        f"    the float64 oracle: at most {certificate.units[worst]:.1e} units off ({worst}), "
        f"by balls of {certificate.bits} bits on row {certificate.row}, key head {certificate.key_head}"
    )
    return "\n".join(lines)


def _controls(case: Case) -> list[tuple[str, Case]]:
    mine, problem = case.implementation, case.problem
    controls = []
    if case.ranks > 1:
        controls.append((f"{mine.name} on one rank", Case(mine, problem, 1)))
    if problem.dtype != "f64" and "f64" in mine.arithmetic:
        widened = Widened(problem.regime, problem.shape, "f64", problem.seed, problem.packing, rounded=problem.dtype)
        controls.append((f"{mine.name} in f64", Case(mine, widened, case.over)))
    others: tuple[Implementation, ...] = (CHUNKED, SEQUENTIAL)
    return controls + [(f"the suite's {x.name}", Case(x, problem, 1)) for x in others if x is not mine]


def _judged(case: Case) -> str:
    reason = not_applicable_here(case)
    if reason:
        return f"not applicable: {reason}"
    try:
        verdict = judge(case)
    except Exception as error:
        return f"could not be judged: {type(error).__name__}: {error}"
    asked = [quantity for quantity in QUANTITIES if (0, quantity) in verdict.findings]
    shares = {q: max(f.worst_units / f.limit for (_, name), f in verdict.findings.items() if name == q) for q in asked}
    worst = max(shares, key=shares.__getitem__)
    wrong = sorted({q for (_, q), finding in verdict.findings.items() if not finding.passes}, key=lambda q: -shares[q])
    units = f"{verdict.worst_units(worst):.3g} units, {worst}"
    return f"wrong too, in {', '.join(wrong)} (worst {units})" if wrong else f"right (worst {units})"
