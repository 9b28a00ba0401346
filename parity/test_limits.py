import pytest

from parity.limits import CERTIFIED_SHARE, LIMITS, limit
from parity.precision import DTYPES, UNIT_ROUNDOFF


@pytest.mark.parametrize(
    ("arithmetic", "output", "coarser"),
    [
        ("f64", "f64", "f64"),
        ("f32", "f32", "f32"),
        ("bf16", "bf16", "bf16"),
        ("f32", "bf16", "bf16"),  # a bf16 run that accumulates in f32: o, dq, dk, dv
        ("bf16", "f32", "bf16"),  # one that does not: its states and gates
        ("f64", "f32", "f32"),
        ("f64", "bf16", "bf16"),
    ],
)
def test_the_limit_is_that_of_the_coarser(arithmetic, output, coarser):
    assert limit(arithmetic, output) == LIMITS[coarser]


def test_every_dtype_has_a_limit():
    assert LIMITS.keys() == CERTIFIED_SHARE.keys() == set(DTYPES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_limit_leaves_no_room_for_a_wrong_digit(dtype):
    """What is accepted stays below a sixtieth of what it is measured by, in f32 below a hundred-thousandth."""
    assert LIMITS[dtype] * UNIT_ROUNDOFF[dtype] <= {"f64": 1e-14, "f32": 1e-5, "bf16": 1 / 60}[dtype]


def test_the_oracle_decides_no_verdict():
    """Its certified error may take half of the limit in f64, whose arithmetic it shares, and elsewhere a thousandth."""
    assert CERTIFIED_SHARE["f64"] <= 0.5
    assert max(CERTIFIED_SHARE["f32"], CERTIFIED_SHARE["bf16"]) <= 1e-3
