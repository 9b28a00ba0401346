"""Known errors put through the judge: how much of the limit each takes up, so that a looser measure shows."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS
from parity.matrix import Case
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.run import LIKE
from parity.shapes import RAGGED, SHORT
from parity.truth import truth
from parity.verdict import judge

CLAIMS: tuple[tuple[Dtype, Dtype], ...] = (("f64", "f64"), ("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"))

Edit = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Probe:
    """`shares`: units / limit, of every row, block and head; `problem`: a digest of the values that it was put to."""

    name: str
    problem: str
    passes: bool
    shares: list[float]


def probes() -> list[Probe]:
    """Every regime, dtype, claim and quantity in the short shape, and the errors that only some measures see."""
    found = [
        probe
        for regime in REGIMES
        for dtype, claimed in CLAIMS
        for probe in _ask("scaled", _scaled, Problem(regime, SHORT, dtype), claimed)
    ]
    for regime in REGIMES:
        found += _ask("scaled", _scaled, Problem(regime, SHORT, "f64"), "f64", ranks=2)
    found += _ask("one token", _one_token, Problem("typical", RAGGED, "f64"), "f64")
    for name, edit in (("not a number", _not_a_number), ("narrower", _narrower), ("one axis more", lambda x: x[None])):
        found += _ask(name, edit, Problem("typical", SHORT, "f64"), "f64")
    return found


def _scaled(x: np.ndarray) -> np.ndarray:
    return (x * 1.0625).astype(x.dtype)


def _one_token(x: np.ndarray) -> np.ndarray:
    """Off in one token of many; in a state, in one row of keys."""
    x = x.copy()
    x[:, min(100, x.shape[1] - 1)] *= 1.0625
    return x


def _not_a_number(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flat[0] = np.nan
    return x


def _narrower(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def _ask(name: str, edit: Edit, problem: Problem, claimed: Dtype, ranks: int = 1) -> Iterator[Probe]:
    wanted, arguments = truth(problem), problem.arguments

    def answer(quantities: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        like = {quantity: arguments[LIKE[quantity]] for quantity in quantities}
        return tuple(edit(wanted.values[q].reshape(x.shape).astype(x.dtype)) for q, x in like.items())

    def call(*inputs: Any, **keywords: Any) -> tuple[Any, ...]:
        return answer(OUTPUTS)

    def vjp(*inputs_and_cotangents: Any, **keywords: Any) -> tuple[Any, ...]:
        return answer(GRADIENTS)

    probe = Implementation(
        "probe", call, {problem.dtype: claimed}, context_parallel=ranks > 1, vjp=vjp, traceable=False
    )
    verdict = judge(Case(probe, problem, ranks))
    values = hashlib.sha256(b"".join(x.tobytes() for x in arguments.values())).hexdigest()[:16]
    for (rank, quantity), finding in sorted(verdict.findings.items()):
        where = f" on rank {rank} of {ranks}" if ranks > 1 else ""
        shares = (finding.units / finding.limit).ravel().tolist()
        named = f"{name} {problem.name} {problem.dtype} in {claimed} {quantity}{where}"
        yield Probe(named, values, finding.passes, shares)
