"""What no result can show passes everywhere, and is not just the right code under another name."""

import inspect

import pytest

from implementations.chunked import chunked
from parity.faults.invisible import INVISIBLE, Invisible
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge

REGIMES = ("long_memory", "typical", "mixed_gates", "strong_decay", "beta_near_two", "zero_keys")

CASES = [
    pytest.param(invisible, regime, id=f"{invisible.name}-f64-{regime}-ragged")
    for invisible in INVISIBLE
    for regime in REGIMES
]


@pytest.mark.faults
@pytest.mark.parametrize(("invisible", "regime"), CASES)
def test_an_invisible_mistake_passes(invisible: Invisible, regime: str) -> None:
    verdict = judge(Case(invisible.implementation, Problem(regime, RAGGED, "f64"), 1))
    wrong = {q: f.failure or f.worst_units for (_, q), f in verdict.findings.items() if not f.passes}
    assert not wrong, invisible.proof


@pytest.mark.parametrize("invisible", INVISIBLE, ids=lambda invisible: invisible.name)
def test_it_is_another_program(invisible: Invisible) -> None:
    edits = {edit.new: edit.old for edit in invisible.edits}
    assert all(new != old for new, old in edits.items())
    assert inspect.unwrap(invisible.implementation.call) is not inspect.unwrap(chunked)
