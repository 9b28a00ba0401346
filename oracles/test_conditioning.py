"""kappa against closed forms, and the sum behind dg against the identity it comes from."""

import numpy as np
import pytest

from oracles.conditioning import PROBES, STEP, decay_gradient_terms, rms_response
from oracles.gated_delta_rule import INPUTS, QUANTITIES, float64
from oracles.stream import Stream


def some(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# rms_response


def test_one_sensitivity_is_found_exactly():
    """Each element of each result depends on one input, so that every sign gives the same magnitude."""
    x, y = some(3, 4), some(5, seed=1)
    found = rms_response(lambda x, y: (-3 * x, 7 * y, x[0] ** 2), (x, y), name="one")
    wanted = (np.abs(3 * x), np.abs(7 * y), 2 * x[0] ** 2)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=4 * STEP)


def test_sensitivities_add_as_squares():
    """Of `M x` the square is the sum over j of `(M_ij x_j)^2`: a probe gives this on average."""
    M, x = some(4000, 6), some(4000, 6, seed=1)
    (found,) = rms_response(lambda x: (np.sum(M * x, axis=1),), (x,), name="linear")
    wanted = np.sqrt(np.sum((M * x) ** 2, axis=1))
    ratio = (found / wanted) ** 2
    assert abs(ratio.mean() - 1) < 5 * np.sqrt(2 / PROBES / 4000)


def test_all_arguments_add_up_with_signs_of_their_own():
    """With the same signs for both, `x - y` at x = y would not move at all, nor would `x / y`."""
    x = 1 + np.abs(some(4000))
    difference, quotient = rms_response(lambda x, y: (x - y, x / y), (x, x.copy()), name="two")
    np.testing.assert_allclose(np.sqrt(np.mean((difference / x) ** 2)), np.sqrt(2), rtol=0.05)
    np.testing.assert_allclose(np.sqrt(np.mean(quotient**2)), np.sqrt(2), rtol=0.05)


def test_an_exact_zero_does_not_move():
    x = np.array([0.0, 2.0])
    (found,) = rms_response(lambda x: (5 * x,), (x,), name="zero")
    assert found[0] == 0
    assert found[1] == pytest.approx(10, rel=1e-6)


def test_it_is_a_function_of_its_name():
    def kappa(name):
        return rms_response(lambda x: (np.sum(x, axis=-1),), (some(20, 30),), name=name)[0].tolist()

    assert kappa("a") == kappa("a")
    assert kappa("a") != kappa("b")


def test_a_result_that_is_known_is_not_computed_again():
    calls = []

    def function(x):
        calls.append(x)
        return (2 * x,)

    x = some(3)
    with_base = rms_response(function, (x,), name="known", result=(2 * x,))
    assert len(calls) == PROBES
    assert all(not np.array_equal(moved, x) for moved in calls)
    without = rms_response(function, (x,), name="known")
    assert len(calls) == 2 * PROBES + 1
    assert np.array_equal(with_base, without)


# decay_gradient_terms


@pytest.fixture(scope="module")
def rule():
    """Inputs, cotangents and quantities of a grouped problem, two rows of ten tokens."""
    stream = Stream("decay gradient terms")
    x = {
        "q": stream.normal("q", 2, 10, 2, 4),
        "k": stream.normal("k", 2, 10, 2, 4) / 2,
        "v": stream.normal("v", 2, 10, 4, 3),
        "g": -stream.uniform("g", 2, 10, 4),
        "beta": stream.uniform("beta", 2, 10, 4),
        "initial_state": stream.normal("h0", 2, 4, 4, 3),
        "do": stream.normal("do", 2, 10, 4, 3),
        "dfinal_state": stream.normal("dh", 2, 4, 4, 3),
    }
    outputs = float64.forward(*(x[name] for name in INPUTS))
    return x, dict(zip(QUANTITIES, (*outputs, *float64.adjoint(*x.values())), strict=True))


@pytest.mark.parametrize("window", [1, 4, 10, 64])
def test_the_terms_are_those_of_the_rest_of_the_window(rule, window):
    x, y = rule
    found = decay_gradient_terms(x, y, window=window)
    assert found.shape == (2, 10, 4)
    for row, t, head in np.ndindex(2, 10, 4):
        squares = 0.0
        for i in range(t, min(t + window, 10)):
            squares += np.sum((y["o"][row, i, head] * x["do"][row, i, head]) ** 2)
            squares += np.sum((y["dv"][row, i, head] * x["v"][row, i, head]) ** 2)
            squares += (y["dbeta"][row, i, head] * x["beta"][row, i, head]) ** 2
        assert found[row, t, head] == pytest.approx(np.sqrt(squares), rel=1e-13)


def test_the_decay_gradient_is_a_sum_of_such_terms(rule):
    """`dg_t - dg_{t+1} = <do_t, o_t> - <dv_t, v_t>`: the error of dg is that of these terms, however small dg is."""
    x, y = rule
    after = np.sum(y["final_state"] * x["dfinal_state"], axis=(-2, -1))[:, None]
    difference = y["dg"] - np.concatenate([y["dg"][:, 1:], after], axis=1)
    terms = np.sum(x["do"] * y["o"], axis=-1) - np.sum(x["v"] * y["dv"], axis=-1)
    np.testing.assert_allclose(difference, terms, rtol=0, atol=1e-12)
