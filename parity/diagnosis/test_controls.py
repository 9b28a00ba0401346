"""Who is right on the same inputs."""

import re

import numpy as np

from implementations.chunked import CHUNKED
from implementations.sequential import SEQUENTIAL
from parity.diagnosis import controls
from parity.diagnosis.conftest import answers_with
from parity.diagnosis.controls import Widened
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import SHORT
from parity.truth import truth
from parity.verdict import judge


def o_off(values):
    values["o"] += 1.0


def read(dtype, change=o_off, ranks=1, **record):
    return controls.read(judge(answers_with(change, Problem("typical", SHORT, dtype), ranks, **record)))


def test_both_of_our_codes_and_the_balls_are_asked():
    text = read("f64")
    assert re.search(r"the suite's chunked: right \(worst \S+ units, \w+\)", text)
    assert re.search(r"the suite's sequential: right \(worst \S+ units, \w+\)", text)
    assert re.search(r"the float64 oracle: at most \S+ units off \(\w+\), by balls of \d+ bits", text)
    assert "in f64" not in text
    assert "one rank" not in text


def test_the_same_code_is_asked_on_one_rank_and_in_f64():
    text = read("f32", ranks=4)
    assert "answers on one rank: wrong too, in o (worst" in text
    assert "answers in f64: wrong too, in " in text


def test_f64_is_not_asked_where_it_is_not_claimed():
    assert "in f64" not in read("f32", arithmetic={"f32": "f32"})


def test_nobody_is_their_own_control():
    found = {
        implementation: controls.read(judge(Case(implementation, Problem("typical", SHORT, "f64"), 1)))
        for implementation in (CHUNKED, SEQUENTIAL)
    }
    assert "suite's sequential" in found[CHUNKED]
    assert "suite's chunked" not in found[CHUNKED]
    assert "suite's chunked" in found[SEQUENTIAL]
    assert "suite's sequential" not in found[SEQUENTIAL]


def test_a_control_that_cannot_be_had_says_why(monkeypatch):
    def judge_nothing(case):
        raise RuntimeError("no more memory")

    failing = judge(answers_with(o_off, Problem("typical", SHORT, "f64"), 1))
    monkeypatch.setattr(controls, "judge", judge_nothing)
    assert "the suite's chunked: could not be judged: RuntimeError: no more memory" in controls.read(failing)


def test_a_widened_problem_has_the_values_that_had_been_rounded():
    narrow = Problem("typical", SHORT, "bf16")
    wide = Widened("typical", SHORT, "f64", 0, rounded="bf16")
    for name, x in wide.arguments.items():
        assert x.dtype == np.float64
        assert np.array_equal(x, narrow.arguments[name].astype(np.float64))
    assert all(np.array_equal(truth(wide).values[q], x) for q, x in truth(narrow).values.items())
