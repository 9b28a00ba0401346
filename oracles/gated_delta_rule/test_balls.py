"""Enclosures are tight, and distances from them are bounds."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from flint import arb, arb_mat, ctx

from oracles.gated_delta_rule import INPUTS, ball
from oracles.gated_delta_rule.test_support import (
    exactly,
    in_balls,
    one_head,
    problem,
)
from oracles.stream import Stream


def is_tight(matrix):
    entries = matrix.entries()
    return max(float(x.rad()) for x in entries) <= 2.0**-64 * max(abs(float(x)) for x in entries)


def test_enclose_raises_the_precision_until_every_ball_is_tight():
    one, tried = one_head(problem("enclose")), []

    def balls(bits):
        tried.append((bits, tuple(in_balls(one, bits=bits).values())))
        return tried[-1][1]

    found, bits = ball.enclose(balls, bits=8)
    assert (bits, found) == tried[-1]
    assert all(is_tight(matrix) for matrix in found)
    assert tried[0][0] == 8
    for (fewer, rejected), (more, _) in pairwise(tried):
        assert more > fewer
        assert not all(is_tight(matrix) for matrix in rejected)


def test_enclose_is_content_with_what_is_tight_at_once():
    one = one_head(problem("enclose"))
    found, bits = ball.enclose(
        lambda bits: ball.forward(*(one[name] for name in INPUTS), scale=None, bits=bits), bits=500
    )
    assert bits == 500
    assert all(is_tight(matrix) for matrix in found)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_enclose_refuses_inputs_that_are_not_finite(name, value):
    one = one_head(problem("not finite", tokens=2))
    one[name] = one[name].copy()
    one[name].flat[1] = value
    with pytest.raises(ArithmeticError, match="finite"):
        ball.enclose(lambda bits: ball.forward(*(one[key] for key in INPUTS), scale=None, bits=bits), bits=4096)


def test_distance_is_a_tight_upper_bound_over_the_whole_ball():
    stream, count = Stream("distance"), 200
    approximation = stream.normal("x", count // 4, 4)
    offsets = stream.normal("offset", count) * 2.0 ** -stream.integers("binade", 80, count)
    radii = stream.uniform("radius", count) * 2.0 ** -stream.integers("size", 120, count)
    with ctx.workprec(200):
        balls = [arb(arb(x) + arb(d), arb(r)) for x, d, r in zip(approximation.ravel(), offsets, radii, strict=True)]
    bounds = ball.distance(approximation, arb_mat(1, count, balls))
    assert bounds.shape == approximation.shape
    for x, b, bound in zip(approximation.ravel().tolist(), balls, bounds.ravel().tolist(), strict=True):
        middle, radius = exactly(b)
        furthest = abs(Fraction(x) - middle) + radius
        assert furthest <= Fraction(bound) <= furthest * (1 + Fraction(2) ** -28)


def test_distance_of_equal_numbers_is_zero():
    assert ball.distance(np.array([0.1, 0.0]), arb_mat(1, 2, [arb(0.1), arb(0)])).tolist() == [0.0, 0.0]


def test_distance_bounds_a_truth_below_the_range_of_floats():
    tiny = arb(2) ** -3000
    assert ball.distance(np.array([0.0]), arb_mat(1, 1, [tiny]))[0] > 0


def test_distance_bounds_a_truth_above_the_range_of_floats():
    assert ball.distance(np.array([1.0]), arb_mat(1, 1, [arb(2) ** 3000]))[0] == np.inf


def test_distance_from_a_number_that_is_not_finite_is_no_bound():
    assert np.isnan(ball.distance(np.array([np.nan]), arb_mat(1, 1, [arb(1)]))[0])
    assert ball.distance(np.array([np.inf]), arb_mat(1, 1, [arb(1)]))[0] == np.inf


def test_distance_rejects_another_number_of_entries():
    with pytest.raises(ValueError, match="3 numbers against 2 balls"):
        ball.distance(np.zeros(3), arb_mat(1, 2))
