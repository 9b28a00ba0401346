"""Answers that are the oracle's but for what a test changes: nothing is compiled, and every wrong place is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from implementations import Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS, QUANTITIES
from parity.matrix import Case
from parity.problem import Problem
from parity.run import LIKE
from parity.shapes import RAGGED, Shape
from parity.truth import truth
from parity.verdict import Verdict, judge

Change = Callable[[dict[str, np.ndarray]], None]


def answers_with(change: Change, problem: Problem, ranks: int, **record: Any) -> Case:
    """A case whose answer is the truth of `problem` with `change` made to it, in the shapes of the contract."""

    def answer(names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        like = problem.arguments
        values = {q: truth(problem).values[q].reshape(like[LIKE[q]].shape).copy() for q in QUANTITIES}
        change(values)
        return tuple(values[name].astype(like[LIKE[name]].dtype) for name in names)

    def call(*inputs: Any, **keywords: Any) -> tuple[np.ndarray, np.ndarray]:
        o, final_state = answer(OUTPUTS)
        return o, final_state

    def vjp(*arguments: Any, **keywords: Any) -> tuple[np.ndarray, ...]:
        return answer(GRADIENTS)

    fields: dict[str, Any] = {"vjp": vjp, "traceable": False, "context_parallel": ranks > 1} | record
    return Case(Implementation("answers", call, **fields), problem, ranks)


@pytest.fixture
def verdict_of() -> Callable[..., Verdict]:
    """`verdict_of(change, ranks=4)`: the verdict on the oracle's answer with `change` made to it."""

    def make(change: Change, *, ranks: int = 1, regime: str = "long_memory", shape: Shape = RAGGED) -> Verdict:
        return judge(answers_with(change, Problem(regime, shape, "f64"), ranks))

    return make
