"""The comparator: what it sees, what it lets pass, and that no number is too small or too large for it."""

import math
from fractions import Fraction

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from parity.unit import BLOCK, block_rms, in_units, units

U = 2.0**-24
TINY = 2.0**-126
F32 = {"u_c": U, "u_out": U, "floor": TINY}
NO_FLOOR = {"u_c": U, "u_out": U, "floor": 0.0}
EXACT = {"u_c": U, "u_out": 0.0, "floor": TINY}


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def some(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# The formula


def test_a_known_error_gives_exactly_the_formula():
    """An error of 3 u in every element, where want is 2 and kappa is 4: 3 / (4 + 2), all of it exact in binary."""
    want, kappa = np.full((1, BLOCK, 1, 4), 2.0), np.full((1, BLOCK, 1, 4), 4.0)
    assert units(want + 3 * U, want, kappa, **NO_FLOOR).item() == 0.5
    assert units(want - 3 * U, want, kappa, **NO_FLOOR).item() == 0.5
    assert units(want, want, kappa, **NO_FLOOR).item() == 0.0
    assert units(want + 3 * U, want, kappa, u_c=U, u_out=0.0, floor=0.0).item() == 0.75
    assert units(want + 3 * U, want, kappa, u_c=0.0, u_out=U, floor=0.0).item() == 1.5
    assert units(want + 3 * U, want, kappa, u_c=U, u_out=8 * U, floor=0.0).item() == 3 / 20


def test_it_is_the_rms_of_the_block_that_counts():
    """3 and 4 in two of four elements: an rms of 5 / 2, whatever their places and signs."""
    error = np.zeros((1, 2, 1, 2))
    error[0, 0, 0, 1], error[0, 1, 0, 0] = -3.0, 4.0
    assert in_units(error, np.ones_like(error), np.zeros_like(error), u_c=1.0, u_out=1.0, floor=0.0).item() == 2.5
    assert in_units(error, np.zeros_like(error), np.ones_like(error), u_c=1.0, u_out=1.0, floor=0.0).item() == 2.5


def test_units_are_the_units_of_the_difference():
    want, kappa, error = some(2, 100, 3, 5), some(2, 100, 3, 5, seed=1), 1e-6 * some(2, 100, 3, 5, seed=2)
    got = want + error
    assert np.array_equal(units(got, want, kappa, **F32), in_units(got - want, want, kappa, **F32))


def test_in_units_takes_an_error_below_one_ulp_of_the_truth():
    want = np.ones((1, 4, 1, 1))
    found = in_units(np.full_like(want, 2.0**-60), want, 0 * want, u_c=2.0**-53, u_out=2.0**-53, floor=0.0)
    assert found.item() == 2.0**-7


def test_every_row_block_and_head_is_its_own():
    want = np.ones((2, 3 * BLOCK, 4, 5))
    got = want.copy()
    got[1, 2 * BLOCK, 3, 4] = 2.0
    found = units(got, want, want, **F32)
    assert found.shape == (2, 3, 4)
    assert np.argwhere(found > 0).tolist() == [[1, 2, 3]]


def test_a_ragged_last_block_is_not_padded():
    """The same error on one token weighs more in a block of 9 tokens than in one of 64."""
    want = np.ones((1, BLOCK + 9, 1, 1))
    got = want.copy()
    got[0, [0, BLOCK]] += 1.0
    found = units(got, want, 0 * want, u_c=1.0, u_out=1.0, floor=0.0)
    np.testing.assert_allclose(found[0, :, 0], [1 / 8, 1 / 3], rtol=1e-15)


def test_blocks_may_be_shorter():
    want = np.ones((1, 40, 1, 1))
    got = want.copy()
    got[0, 17] = 2.0
    for found in (units(got, want, want, **F32, block=16), in_units(got - want, want, want, **F32, block=16)):
        assert np.flatnonzero(found[0, :, 0] > 0).tolist() == [1]
        assert found.shape == (1, 3, 1)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 128])
def test_blocks_cover_every_token(tokens):
    want = np.ones((1, tokens, 1, 1))
    for token in range(tokens):
        got = want.copy()
        got[0, token] = 0.0
        found = units(got, want, want, **F32)
        assert found.shape == (1, math.ceil(tokens / BLOCK), 1)
        assert np.argwhere(found > 0).tolist() == [[0, token // BLOCK, 0]]


def test_one_bad_token_in_a_hundred_thousand_is_seen_undiluted():
    want, kappa = some(1, 100_000, 1, 4), np.ones((1, 100_000, 1, 4))
    got = want.copy()
    got[0, 77_777, 0] += 1e-3
    alone = slice(77_777 // BLOCK * BLOCK, (77_777 // BLOCK + 1) * BLOCK)
    found = units(got, want, kappa, **F32)
    assert found.max() == units(got[:, alone], want[:, alone], kappa[:, alone], **F32).item()
    assert found.max() > 500
    assert np.count_nonzero(found) == 1


# Nothing is cast, nothing is broadcast


@pytest.mark.parametrize(
    "shape",
    [(1, 4, 2), (1, 5, 2, 3), (1, 4, 3, 2), (1, 4, 2, 1), (1, 1, 2, 3), (2, 4, 2, 3), (3,), (), (1, 1, 4, 2, 3)],
)
@pytest.mark.parametrize("which", ["got", "want", "kappa"])
@pytest.mark.usefixtures("unchecked")
def test_a_shape_that_differs_is_refused_even_where_it_broadcasts(which, shape):
    arrays = {name: np.zeros((1, 4, 2, 3)) for name in ("got", "want", "kappa")} | {which: np.zeros(shape)}
    with pytest.raises(ValueError, match="must have one shape"):
        units(**arrays, **F32)


# What is not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_infinitely_wrong(bad):
    got = np.ones((2, 2 * BLOCK, 3, 4))
    got[1, 70, 2, 3] = bad
    found = units(got, np.ones_like(got), np.ones_like(got), **F32)
    assert found[1, 1, 2] == np.inf
    assert np.count_nonzero(found) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("terms", [0.0, 1.0, 1e308])
def test_no_allowance_makes_it_finite(bad, terms):
    got = np.full((1, 2, 1, 2), bad)
    assert units(got, np.full_like(got, terms), np.full_like(got, terms), **F32).item() == np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_truth_that_is_not_finite_judges_nobody(bad):
    x, broken = np.ones((1, 2, 1, 2)), np.ones((1, 2, 1, 2))
    broken[0, 1, 0, 1] = bad
    for arguments in ((x, broken, x), (x, x, broken), (broken, broken, x)):
        with pytest.raises(ValueError, match="must be finite"):
            units(*arguments, **F32)


def test_a_difference_that_overflows_is_infinite():
    """Both numbers are finite, and their difference is not: infinity, and not the NaN of inf / inf."""
    huge = np.full((1, 2, 1, 2), 1.7e308)
    assert units(-huge, huge, huge, **F32).item() == np.inf


# Zeros


def test_zeros_are_not_the_answer():
    """What an implementation that returns nothing would return."""
    want = some(1, 128, 2, 8)
    found = units(0 * want, want, np.abs(want), **F32)
    assert found.min() > 0.1 / U
    np.testing.assert_allclose(units(0 * want, want, 0 * want, **F32), 1 / U, rtol=1e-12)


def test_a_result_where_the_truth_is_zero_is_seen():
    want = np.zeros((1, 4, 1, 2))
    assert units(want + 1e-30, want, want, **F32).item() == np.inf
    assert units(want + 1e-20, want, want + 1e-20, **F32).item() == pytest.approx(1 / U, rel=1e-3)


@pytest.mark.parametrize("wrong", [1.0, 1e-300, 5e-324])
@pytest.mark.parametrize("tolerances", [F32, EXACT, NO_FLOOR])
def test_where_both_terms_are_zero_the_claim_is_equality(wrong, tolerances):
    """No floor hides the smallest number there is, in one element of a whole block."""
    want = np.zeros((1, BLOCK, 1, 8))
    got = want.copy()
    assert units(got, want, want, **tolerances).item() == 0
    assert units(-got, want, want, **tolerances).item() == 0
    got[0, 3, 0, 3] = wrong
    assert units(got, want, want, **tolerances).item() == np.inf


def test_without_an_output_rounding_the_truth_itself_grants_nothing():
    """As exact problems are judged: u_out = 0 and kappa = 0."""
    want = some(1, 4, 1, 2)
    assert units(want, want, 0 * want, **EXACT).item() == 0
    assert units(np.nextafter(want, np.inf), want, 0 * want, **EXACT).item() == np.inf


def test_an_arithmetic_without_rounding_grants_nothing_however_large_kappa_is():
    want = np.ones((1, 4, 1, 2))
    assert units(want + 1e-9, want, 1e9 * want, u_c=0.0, u_out=0.0, floor=TINY).item() == np.inf
    assert units(want + 1e-9, 0 * want + 1.0, 0 * want, u_c=U, u_out=0.0, floor=TINY).item() == np.inf


def test_one_element_that_may_err_is_enough_for_its_block():
    want, kappa = np.zeros((1, 4, 1, 2)), np.zeros((1, 4, 1, 2))
    kappa[0, 2, 0, 1] = 1.0
    assert units(want + U, want, kappa, u_c=U, u_out=0.0, floor=0.0).item() == pytest.approx(8**0.5)
    assert units(kappa + U, kappa, want, u_c=0.0, u_out=U, floor=0.0).item() == pytest.approx(8**0.5)


@pytest.mark.parametrize(
    ("got", "want", "kappa"), [(-1.7e308, 1.7e308, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1e300, 1e-300, 1e-300)]
)
def test_nothing_is_said_on_the_way(recwarn, got, want, kappa):
    """Where a division is by zero, or an error overflows, that is known, and a warning would be taken for a finding."""
    units(*(np.full((1, 2, 1, 2), x) for x in (got, want, kappa)), **NO_FLOOR)
    assert not recwarn.list


def test_equality_is_asked_block_by_block():
    want = np.zeros((1, 2 * BLOCK, 1, 1))
    want[0, BLOCK:] = 1.0
    found = units(want + 1e-9, want, 0 * want, **F32)
    assert found[0, 0, 0] == np.inf
    assert 0 < found[0, 1, 0] < 1


# The floor


def test_errors_below_the_smallest_normal_number_are_accepted():
    """A result of 1e-42 in f32 has three bits left, and flushing it to zero is allowed too."""
    want = np.full((1, 4, 1, 2), 1e-42)
    for got in (1.1 * want, 0 * want, -want):
        assert units(got, want, want, **F32).item() < 1e-3


def test_it_accepts_them_where_the_scale_itself_underflows():
    want = np.full((1, 4, 1, 2), 1e-310)
    f64 = {"u_c": 2.0**-53, "u_out": 2.0**-53, "floor": 2.0**-1022}
    assert units(1.5 * want, want, want, **f64).item() < 0.01
    assert units(1.5 * want, want, 0 * want, **f64).item() < 0.01
    assert units(want, 0 * want, want, **f64).item() < 0.01
    assert units(np.full_like(want, 1e-300), want, want, **f64).item() > 1e6


def test_the_floor_grants_nothing_to_a_normal_error():
    """Ten smallest normal numbers are ten units, and at the scale of 1 the floor changes no bit."""
    want = np.full((1, 4, 1, 2), 1e-42)
    assert units(want + 10 * TINY, want, 0 * want, **F32).item() == pytest.approx(10)
    x = some(1, 64, 1, 4)
    assert np.array_equal(units(x + 1e-6, x, x, **F32), units(x + 1e-6, x, x, **NO_FLOOR))


# block_rms


def reference_rms(values):
    """In rationals up to the square root, which mpmath takes in 60 digits."""
    mean = sum((Fraction(x) ** 2 for x in values), Fraction(0)) / len(values)
    with mp.workdps(60):
        return float(mp.sqrt(mp.mpf(mean.numerator) / mean.denominator))


@pytest.mark.parametrize(
    "values",
    [
        [1e-200, 3e-200, -2e-200],  # squares underflow
        [1e200, -2e200, 2e200],  # squares overflow
        [1.7e308, 1.7e308, 1.7e308],  # their sum would too
        [1e300, 1e-300, 1.0],
        [5e-324, 0.0, 5e-324],
        [2.0**-1074 * 12345, -(2.0**-1060)],
        [0.0, 0.0],
        [-7.0],
    ],
)
def test_the_rms_of_numbers_whose_squares_do_not_exist(values):
    found = block_rms(np.array(values).reshape(1, 1, 1, -1)).item()
    assert found == pytest.approx(reference_rms(values), rel=1e-14, abs=5e-324)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=200),
    st.integers(1, 3),
)
def test_the_rms_of_any_numbers(values, size):
    values = values[: len(values) // size * size] or values * size
    x = np.array(values).reshape(1, -1, 1, size)
    found = block_rms(x)
    wanted = [reference_rms(values[start : start + BLOCK * size]) for start in range(0, len(values), BLOCK * size)]
    assert found.shape == (1, len(wanted), 1)
    np.testing.assert_allclose(found[0, :, 0], wanted, rtol=1e-13, atol=1e-323)
