"""A result that would pass with a narrower claim is said to, and no other is."""

import ml_dtypes
import numpy as np
import pytest

from implementations.chunked import CHUNKED
from parity.diagnosis import by_precision
from parity.diagnosis.conftest import answers_with
from parity.faults.catalogue import CATALOGUE
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED, SHORT
from parity.verdict import judge

FAULTS = {fault.name: fault for fault in CATALOGUE}


def read(change, dtype="f64", **record):
    return by_precision.read(judge(answers_with(change, Problem("typical", SHORT, dtype), 1, **record)))


def rounded_to(dtype):
    def change(values):
        for name in values:
            values[name] = values[name].astype(dtype).astype(np.float64)

    return change


def test_a_result_that_was_rounded_to_f32_is_as_accurate_as_f32():
    text = read(rounded_to(np.float32))
    assert text.startswith("    as accurate as f32 arithmetic: every quantity is within the limits of f32 (")
    assert text.endswith("and f64 is claimed for f64 inputs")


def test_the_widest_arithmetic_that_fits_is_named():
    assert "as accurate as bf16 arithmetic" in read(rounded_to(ml_dtypes.bfloat16), "f32")
    assert "as accurate as bf16 arithmetic" in read(rounded_to(ml_dtypes.bfloat16))


@pytest.mark.parametrize("error", [1.0, 1e-11], ids=["structure", "better_than_f32"])
def test_what_no_arithmetic_explains_is_left_alone(error):
    def change(values):
        values["o"] *= 1 + error

    assert read(change) == ""


def test_what_could_not_be_measured_is_left_alone():
    def change(values):
        values["o"] = values["o"][:, :1]

    assert read(change) == ""


def test_there_is_nothing_narrower_than_bf16():
    def change(values):
        values["o"] *= 1.1

    assert read(change, "bf16", arithmetic={"bf16": "bf16"}) == ""


@pytest.mark.parametrize("name", ["f64_in_f32", "accumulation_in_f32"])
def test_arithmetic_in_f32_is_seen(name):
    fault = FAULTS[name]
    verdict = judge(Case(fault.implementation, Problem(fault.regimes[0], RAGGED, "f64"), 1))
    assert "as accurate as f32 arithmetic" in by_precision.read(verdict)


def test_right_code_has_no_such_line_of_a_structural_fault():
    fault = FAULTS["gate_of_head_0"]
    verdict = judge(Case(fault.on(CHUNKED), Problem(fault.regimes[0], RAGGED, "f64"), 1))
    assert not verdict.passes
    assert by_precision.read(verdict) == ""
