"""Which known mistake of the layer gives the same wrong values: the mistakes, run on the failing problem."""

from collections.abc import Mapping
from functools import cache

import numpy as np

from parity.layer.measure import Finding, Pieces, limit_of, off
from parity.layer.mistake import Mistake, planted
from parity.layer.mistakes import MISTAKES
from parity.layer.problem import Problem
from parity.layer.run import Around, answer, findings

# How much nearer than the truth a mistake must be, wherever the failure is over the limit; two codes that are each
# within the limit of one function are within twice the limit of each other.
NEARER, ROUNDING = 30.0, 2.0


@cache
def explain(around: Around, problem: Problem) -> str:
    """All that is wrong, worst first, and the mistakes that are wrong in the same way; one line each."""
    found = findings(around, problem)
    wrong = sorted((x for x in found.values() if not x.passes), key=lambda x: -x.units / x.limit)
    lines = [f"{around.name}, {problem.name} in {problem.dtype}", *(f"    {finding}" for finding in wrong)]
    named = resembling(around, problem, MISTAKES)
    lines += [f"the same values as where {MISTAKES[name].cause} ({name})" for name in named]
    if not named:
        lines.append(f"none of {len(_tried(around, problem, MISTAKES))} known mistakes of the layer gives these values")
    return "\n".join(lines)


def resembling(around: Around, problem: Problem, mistakes: Mapping[str, Mistake]) -> list[str]:
    """Names of the mistakes that give the failing values, nearest first."""
    failing, near = answer(around, problem), {}
    for mistake in _tried(around, problem, mistakes):
        distance = _distance(around, problem, failing, mistake)
        if distance is not None:
            near[mistake.name] = distance
    return sorted(near, key=near.__getitem__)


def _tried(around: Around, problem: Problem, mistakes: Mapping[str, Mistake]) -> list[Mistake]:
    return [mistake for mistake in mistakes.values() if mistake.applies_to(around, problem)]


def _distance(around: Around, problem: Problem, failing: Pieces, mistake: Mistake) -> float | None:
    return distance(problem, failing, answer(planted(mistake, around), problem), findings(around, problem))


def distance(problem: Problem, failing: Pieces, mistaken: Pieces, of_truth: Mapping[str, Finding]) -> float | None:
    """The worst units between the failing values and those of a mistake, of all that failed; None where it is not it.
    Where one is not finite the other must be so too, element by element.
    """
    limit, worst = limit_of(problem.dtype).units, 0.0
    for name, pieces in failing.items():
        finite = [[np.isfinite(x.astype(np.float64)) for x in some] for some in (pieces, mistaken[name])]
        if not all(np.array_equal(a, b) for a, b in zip(*finite, strict=True)):
            return None
        both = ([np.where(f, x, 0) for x, f in zip(some, finite[0], strict=True)] for some in (pieces, mistaken[name]))
        units, _ = off(problem, name, *both)
        if not units <= max(ROUNDING * limit, of_truth[name].units / NEARER):
            return None
        worst = max(worst, units)
    return worst
