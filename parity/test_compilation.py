"""What the gate leaves out of a compilation is LLVM's share alone: the operations are those that users compile."""

from typing import Any

import jax
import pytest

import parity.run
from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Dtype, Implementation
from parity.compilation import jit_for_few_runs
from parity.layouts import over
from parity.matrix import Case
from parity.meshes import place
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge_answer


@pytest.mark.parametrize(("implementation", "dtype", "ranks"), [(CHUNKED, "f32", 1), (TWO_PHASE, "f64", 4)])
def test_the_same_operations_within_the_same_limits(
    monkeypatch: pytest.MonkeyPatch, implementation: Implementation, dtype: Dtype, ranks: int
) -> None:
    case = Case(implementation, Problem("long_memory", RAGGED, dtype), ranks)
    as_in_the_gate, as_users = (compiled(monkeypatch, case, jit) for jit in (jit_for_few_runs, jax.jit))
    assert as_in_the_gate.as_text() == as_users.as_text()
    for program in (as_in_the_gate, as_users):
        monkeypatch.setattr(parity.run, "_program", lambda *_, program=program: program)
        assert judge_answer(case, parity.run.run(implementation, case.problem, ranks)).passes


def compiled(monkeypatch: pytest.MonkeyPatch, case: Case, jit: Any) -> Any:
    monkeypatch.setattr(parity.run, "jit_for_few_runs", jit)
    program = parity.run._program.__wrapped__
    layout = over(case.ranks) if case.implementation.context_parallel else None
    with jax.enable_x64(case.problem.dtype == "f64"):
        arguments = [
            place(x, layout, over_tokens=name not in parity.run.REPLICATED)
            for name, x in case.problem.arguments.items()
        ]
        asked = program(case.implementation, case.problem.dtype, case.problem.shape, layout, True)
        return asked.lower(*arguments).compile()
