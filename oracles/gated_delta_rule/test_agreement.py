"""The three arithmetics of the rule against each other, and the adjoint against central differences."""

import numpy as np
import pytest
from flint import arb
from mpmath import mp

from oracles.conditioning import rms_response
from oracles.gated_delta_rule import GRADIENTS, INPUTS, QUANTITIES, ball, float64
from oracles.gated_delta_rule import mp as mpmath_rule
from oracles.gated_delta_rule.test_support import (
    CASES,
    PER_KEY_HEAD,
    U,
    each_case,
    errors,
    exactly,
    in_balls,
    in_float64,
    in_mp,
    one_head,
    problem,
    rms,
)


@each_case
def test_float64_is_within_a_few_roundoffs_of_mpmath(x, scale):
    found, truth = in_float64(x, scale), in_mp(one_head(x), scale)
    # How far a result moves when each input moves by one unit, so that a sum that cancels is not held to its own size.
    kappa = rms_response(
        lambda *arguments: tuple(in_float64(dict(zip(x, arguments, strict=True)), scale).values()),
        tuple(x.values()),
        name="within a few roundoffs",
    )
    for name, response in zip(QUANTITIES, kappa, strict=True):
        assert rms(errors(found[name], truth[name])) <= 2 * U * (rms(response) + rms(found[name])), name


@each_case
def test_balls_contain_mpmath_and_are_small(x, scale):
    enclosures, truth = in_balls(one_head(x), scale), in_mp(one_head(x), scale)
    for name in QUANTITIES:
        entries = enclosures[name].entries()
        assert all(b.contains(arb(m)) for b, m in zip(entries, truth[name], strict=True)), name
        assert max(float(b.rad()) for b in entries) < 2.0**-180, name


@each_case
def test_distance_bounds_the_error_of_float64(x, scale):
    found, enclosures, truth = in_float64(x, scale), in_balls(one_head(x), scale), in_mp(one_head(x), scale)
    for name in QUANTITIES:
        bound = ball.distance(found[name], enclosures[name])
        error = np.abs(errors(found[name], truth[name]))
        assert np.all(error <= bound), name
        assert np.all(bound <= error * (1 + 1e-12) + 2.0**-180), name


def test_float64_stays_within_a_few_roundoffs_over_many_tokens():
    x = problem("many tokens", tokens=64, key_size=8, value_size=8)
    found, one = in_float64(x), one_head(x)
    enclosures, _ = ball.enclose(lambda bits: tuple(in_balls(one, bits=bits).values()))
    for name, balls in zip(QUANTITIES, enclosures, strict=True):
        assert rms(ball.distance(found[name], balls)) <= 4 * U * rms(found[name]), name


@pytest.mark.parametrize("scale", [None, 0.3])
def test_float64_of_forward_and_of_adjoint_is_that_of_both(scale):
    x = CASES["typical"][0]
    apart = (*float64.forward(*(x[name] for name in INPUTS), scale=scale), *float64.adjoint(*x.values(), scale=scale))
    for quantity, one in zip(QUANTITIES, apart, strict=True):
        assert np.array_equal(one, in_float64(x, scale)[quantity])


def test_balls_of_forward_and_of_adjoint_are_those_of_both():
    one = one_head(CASES["typical"][0])
    outputs = ball.forward(*(one[name] for name in INPUTS), scale=None, bits=90)
    gradients = ball.adjoint(*one.values(), scale=None, bits=90)
    for name, alone in zip(QUANTITIES, (*outputs, *gradients), strict=True):
        both = in_balls(one, bits=90)[name].entries()
        assert [exactly(x) for x in alone.entries()] == [exactly(x) for x in both], name


def test_mpmath_delivers_the_digits_it_was_asked_for():
    one = one_head(CASES["typical"][0])
    coarse, fine = in_mp(one, digits=30), in_mp(one, digits=90)
    with mp.workdps(90):
        worst = max(mp.mnorm(coarse[name] - fine[name]) / mp.mnorm(fine[name]) for name in QUANTITIES)
    assert 1e-32 < worst < 1e-28


def test_value_heads_share_key_heads_in_consecutive_groups():
    x = problem("groups", batch=2, tokens=3, key_heads=2, group=3)
    found = in_float64(x)
    for row in range(2):
        shared = {("dq", 0): 0, ("dq", 1): 0, ("dk", 0): 0, ("dk", 1): 0}
        for head, key_head in enumerate([0, 0, 0, 1, 1, 1]):
            one = one_head(x, row, head)
            np.testing.assert_array_equal(one["k"], x["k"][row, :, key_head])
            truth = in_mp(one)
            for name in QUANTITIES:
                if name in PER_KEY_HEAD:
                    shared[name, key_head] += truth[name]
                    continue
                mine = found[name][row, head] if name in ("final_state", "dh0") else found[name][row, :, head]
                assert rms(errors(mine, truth[name])) <= 8 * U * (1 + rms(mine)), name
        for (name, key_head), total in shared.items():
            assert rms(errors(found[name][row, :, key_head], total)) <= 8 * U * mp.mnorm(total, "f"), name


@each_case
def test_mpmath_adjoint_is_the_central_difference_of_mpmath_forward(x, scale):
    one, step = one_head(x), mp.mpf("1e-20")
    gradients = in_mp(one, scale, digits=70)

    def loss(inputs):
        o, final_state = mpmath_rule.forward(*inputs.values(), scale=scale, digits=70)
        return mp.fdot(mp.matrix(one["do"]), o) + mp.fdot(mp.matrix(one["dfinal_state"]), final_state)

    for name, gradient in zip(INPUTS, GRADIENTS, strict=True):
        for entry, claimed in zip(np.ndindex(one[name].shape), gradients[gradient], strict=True):
            with mp.workdps(70):
                inputs = {key: one[key].astype(object) for key in INPUTS}
                inputs[name][entry] = mp.mpf(one[name][entry]) + step
                above = loss(inputs)
                inputs[name][entry] = mp.mpf(one[name][entry]) - step
                assert abs((above - loss(inputs)) / (2 * step) - claimed) < 1e-37, (gradient, entry)
