"""The dtypes under test: their constants, and that rounding to them is rounding once."""

import ml_dtypes
import numpy as np
import pytest

from oracles.gated_delta_rule import INPUTS, QUANTITIES
from parity.precision import DTYPES, NUMPY, SMALLEST_NORMAL, UNIT_ROUNDOFF, dtype_of, round_to

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@each_dtype
def test_the_tables_are_those_of_the_formats(dtype):
    info = ml_dtypes.finfo(NUMPY[dtype])
    assert UNIT_ROUNDOFF[dtype] == float(info.eps) / 2
    assert SMALLEST_NORMAL[dtype] == float(info.smallest_normal)


@each_dtype
def test_the_unit_roundoff_is_half_the_gap_above_one(dtype):
    u = UNIT_ROUNDOFF[dtype]
    x = np.array([1 + u, 1 + 2 * u, 1 + 3 * u])
    assert round_to(x, dtype).astype(np.float64).tolist() == [1, 1 + 2 * u, 1 + 4 * u]


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (1 + 2.0**-8, 1.0),  # a tie, to even
        (1 + 3 * 2.0**-8, 1 + 2.0**-6),
        (1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),  # rounded to f32 first, it would be the tie
        (1 + 2.0**-8 - 2.0**-40, 1.0),
        (-(1 + 2.0**-8 + 2.0**-40), -(1 + 2.0**-7)),
        (2 - 2.0**-9, 2.0),
        (0.0, 0.0),
        (2.0**-133, 2.0**-133),  # the smallest
        (2.0**-134 + 2.0**-170, 2.0**-133),
        (2.0**-134, 0.0),
        (1.5 * 2.0**-133 + 2.0**-180, 2.0**-132),
        (2.0**-1074, 0.0),
        (255 * 2.0**120, 255 * 2.0**120),  # the largest
        (1e39, np.inf),
        (-np.inf, -np.inf),
    ],
)
def test_bf16_is_rounded_once_to_nearest_even(x, wanted):
    with np.errstate(over="ignore"):
        found = round_to(np.array([x, -x]), "bf16")
    assert found.dtype == ml_dtypes.bfloat16
    assert found.astype(np.float64).tolist() == [wanted, -wanted]


def test_nan_stays_nan():
    assert all(np.isnan(round_to(np.array([np.nan]), dtype)).all() for dtype in DTYPES)


def test_what_is_representable_does_not_move():
    every_bf16 = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)  # they are the upper halves of f32
    finite = every_bf16[np.isfinite(every_bf16)].astype(np.float64)
    for dtype in DTYPES:
        assert np.array_equal(round_to(finite, dtype).astype(np.float64), finite)


@pytest.mark.parametrize("name", [*INPUTS, "do", "dfinal_state", *QUANTITIES])
def test_every_array_has_the_dtype_of_the_run_but_gates_and_states_beside_bf16(name):
    assert dtype_of(name, "f64") == "f64"
    assert dtype_of(name, "f32") == "f32"
    assert dtype_of(name, "bf16") == ("bf16" if name.removeprefix("d") in ("q", "k", "v", "o") else "f32")
