"""The certificate: bounds that hold, that are no larger than they need be, and a sample that anyone can repeat."""

import numpy as np
import pytest
from mpmath import mp

from oracles import certify as certify_module
from oracles.certify import certify
from oracles.gated_delta_rule import INPUTS, QUANTITIES, ball, float64
from oracles.gated_delta_rule import mp as mpmath_rule
from oracles.stream import Stream

B, T, HK, HV, K, V = 3, 5, 2, 6, 3, 2
STATES = ("initial_state", "dfinal_state", "final_state", "dh0")
PER_KEY_HEAD = ("q", "k", "dq", "dk")


@pytest.fixture(scope="module")
def arguments():
    stream = Stream("certify")
    return {
        "q": stream.normal("q", B, T, HK, K),
        "k": stream.normal("k", B, T, HK, K) / 2,
        "v": stream.normal("v", B, T, HV, V),
        "g": -stream.uniform("g", B, T, HV),
        "beta": stream.uniform("beta", B, T, HV),
        "initial_state": stream.normal("h0", B, HV, K, V),
        "do": stream.normal("do", B, T, HV, V),
        "dfinal_state": stream.normal("dh", B, HV, K, V),
    }


@pytest.fixture(scope="module")
def values(arguments):
    results = float64.forward_and_adjoint(*arguments.values(), scale=0.7)
    return dict(zip(QUANTITIES, results, strict=True))


@pytest.fixture(scope="module")
def found(arguments, values):
    return certify(arguments, values, scale=0.7, name="a test")


@pytest.fixture(scope="module")
def errors(arguments, values, found):
    """`|float64 - mpmath|` on the sample, the truth in 60 digits and the difference taken there: `[T, heads, size]`."""
    row, heads = found.row, [found.key_head * 3 + i for i in range(3)]
    with mp.workdps(60):
        truth = [in_mp(arguments, row, head) for head in heads]
        result = {}
        for name in QUANTITIES:
            if name in PER_KEY_HEAD:
                sums = truth[0][name] + truth[1][name] + truth[2][name]
                result[name] = differences(values[name][row, :, found.key_head], sums)[:, None]
            elif name in STATES:
                result[name] = np.stack(
                    [differences(values[name][row, h], t[name]) for h, t in zip(heads, truth, strict=True)]
                )
            else:
                each = [differences(values[name][row, :, h], t[name]) for h, t in zip(heads, truth, strict=True)]
                result[name] = np.stack([x.reshape(T, -1) for x in each], axis=1)
    return result


def in_mp(arguments, row, head):
    one = {
        name: x[row, head] if name in STATES else x[row, :, head // 3 if name in PER_KEY_HEAD else head]
        for name, x in arguments.items()
    }
    outputs = mpmath_rule.forward(*(one[name] for name in INPUTS), scale=0.7, digits=60)
    gradients = mpmath_rule.adjoint(*one.values(), scale=0.7, digits=60)
    return dict(zip(QUANTITIES, (*outputs, *gradients), strict=True))


def differences(approximation, truth):
    found = [float(abs(mp.mpf(float(a)) - b)) for a, b in zip(approximation.ravel(), truth, strict=True)]
    return np.array(found).reshape(approximation.shape)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_bounds_hold_and_are_tight(found, errors, quantity):
    bound, error = found.bounds[quantity], errors[quantity]
    shape = (
        (3, K, V)
        if quantity in STATES
        else (T, 1, K)
        if quantity in PER_KEY_HEAD
        else (T, 3, 1 if quantity in ("dg", "dbeta") else V)
    )
    assert bound.shape == error.shape == shape
    assert np.all(bound >= error)
    assert np.all(bound <= error * (1 + 1e-9) + 1e-20 * np.max(np.abs(error) + 1))
    assert np.max(error) > 0


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_an_error_of_the_oracle_is_in_the_bound(arguments, values, found, quantity):
    """In one element of the last head of the sampled group, so that no head is left out."""
    wrong = {name: x.copy() for name, x in values.items()}
    last = found.key_head if quantity in PER_KEY_HEAD else found.key_head * 3 + 2
    index = (found.row, last, 1, 1) if quantity in STATES else (found.row, T - 1, last)
    wrong[quantity][index] += 1e-9
    bounds = certify(arguments, wrong, scale=0.7, name="a test").bounds
    assert bounds[quantity].max() == pytest.approx(1e-9, rel=1e-3)
    assert all(np.array_equal(bounds[name], found.bounds[name]) for name in QUANTITIES if name != quantity)


def test_the_scale_is_the_callers(arguments, values, found):
    other = certify(arguments, values, scale=None, name="a test").bounds
    assert other["o"].max() > 0.01
    assert np.array_equal(other["final_state"], found.bounds["final_state"])


def test_the_sample_is_a_function_of_the_name(arguments, values, found):
    again = certify(arguments, values, scale=0.7, name="a test")
    assert (again.row, again.key_head, again.bits) == (found.row, found.key_head, found.bits)
    assert all(np.array_equal(again.bounds[name], found.bounds[name]) for name in QUANTITIES)


def test_every_row_and_key_head_is_sampled_under_some_name(arguments, values):
    tiny = {name: x if name in STATES else x[:, :1] for name, x in arguments.items()}
    tiny_values = {name: x if name in STATES else x[:, :1] for name, x in values.items()}
    samples = {certify(tiny, tiny_values, scale=0.7, name=str(n))[:2] for n in range(40)}
    assert samples == {(row, key_head) for row in range(B) for key_head in range(HK)}


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(certify_module, "WORTH_A_PILOT", 1), (ball, "FIRST_BITS", 500), (ball, "SHARP", 10**9), (ball, "SHARP", 64)],
    ids=["a pilot", "more bits than it takes", "no dg from the next", "dg from the next more often"],
)
@pytest.mark.parametrize("weak", [0.0, -0.3], ids=["mixed gates", "weak gates"])
def test_the_short_cuts_change_no_bound(arguments, monkeypatch, module, name, value, weak):
    """Where gates alternate with -300 the sum that dg is cancels, and is not used as it is."""
    mixed = arguments | {"g": np.where(np.arange(T)[None, :, None] % 2, -300.0 if weak == 0 else weak, weak / 2)}
    mixed["g"] = np.broadcast_to(mixed["g"], arguments["g"].shape).copy()
    values = dict(zip(QUANTITIES, float64.forward_and_adjoint(*mixed.values(), scale=0.7), strict=True))
    wanted = certify(mixed, values, scale=0.7, name="a test").bounds
    monkeypatch.setattr(module, name, value)
    found = certify(mixed, values, scale=0.7, name="a test").bounds
    for quantity in QUANTITIES:
        np.testing.assert_allclose(found[quantity], wanted[quantity], rtol=1e-2, err_msg=quantity)
