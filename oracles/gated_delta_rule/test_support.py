"""Small problems and the three arithmetics side by side: what the tests of the rule share."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from oracles.gated_delta_rule import INPUTS, QUANTITIES, ball, float64
from oracles.gated_delta_rule import mp as mpmath_rule
from oracles.stream import Stream

U = 2.0**-53
STATES = ("initial_state", "dfinal_state")
PER_KEY_HEAD = ("q", "k", "dq", "dk")


def problem(name, *, batch=1, tokens=5, key_heads=1, group=1, key_size=3, value_size=2, beta_below=1.0):
    """Inputs and cotangents: unit keys and queries to 2^-26, decays in (e^-1, 1], beta in [0, beta_below)."""
    stream, heads = Stream(name), key_heads * group

    def unit(label):
        x = stream.normal(label, batch, tokens, key_heads, key_size)
        return np.round(x / np.linalg.norm(x, axis=-1, keepdims=True) * 2**26) / 2**26

    return {
        "q": unit("q"),
        "k": unit("k"),
        "v": stream.normal("v", batch, tokens, heads, value_size),
        "g": -stream.uniform("g", batch, tokens, heads),
        "beta": stream.uniform("beta", batch, tokens, heads) * beta_below,
        "initial_state": stream.normal("h0", batch, heads, key_size, value_size),
        "do": stream.normal("do", batch, tokens, heads, value_size),
        "dfinal_state": stream.normal("dht", batch, heads, key_size, value_size),
    }


def boundary_problem(name):
    """What a formula may divide by or forget: beta 0, 1 and 2, no decay, a strong one, a repeated key, a zero key."""
    x = problem(name, tokens=6, key_size=2, value_size=3)
    x["beta"][0, :, 0] = [0, 1, 2, 1, 0.5, 1]
    x["g"][0, :, 0] = [0, 0, -30, -1, 0, -0.5]
    x["k"][0, 3] = x["k"][0, 1]
    x["k"][0, 4] = 0
    return x


CASES = {
    "typical": (problem("typical"), None),
    "scaled": (problem("scaled", tokens=4, key_size=2, value_size=3), 0.3),
    "beta_near_two": (problem("beta near two", tokens=6, beta_below=2.0), None),
    "boundary": (boundary_problem("boundary"), None),
    "one_token": (problem("one token", tokens=1, key_size=4, value_size=1), None),
}
each_case = pytest.mark.parametrize(("x", "scale"), CASES.values(), ids=CASES.keys())


def one_head(x, row=0, head=0):
    """The arguments of one row and value head."""
    group = x["v"].shape[2] // x["q"].shape[2]
    return {
        name: array[row, head] if name in STATES else array[row, :, head // group if name in PER_KEY_HEAD else head]
        for name, array in x.items()
    }


def in_float64(x, scale=None):
    return dict(zip(QUANTITIES, float64.forward_and_adjoint(*x.values(), scale=scale), strict=True))


def in_mp(one, scale=None, digits=80):
    outputs = mpmath_rule.forward(*(one[name] for name in INPUTS), scale=scale, digits=digits)
    gradients = mpmath_rule.adjoint(*one.values(), scale=scale, digits=digits)
    return dict(zip(QUANTITIES, (*outputs, *gradients), strict=True))


def in_balls(one, scale=None, bits=200):
    return dict(zip(QUANTITIES, ball.forward_and_adjoint(*one.values(), scale=scale, bits=bits), strict=True))


def errors(approximation, truth):
    """`approximation - truth` for a float array and an mpmath matrix, subtracted before it is rounded."""
    with mp.workdps(100):
        flat = [float(mp.mpf(float(a)) - b) for a, b in zip(approximation.ravel(), truth, strict=True)]
    return np.array(flat).reshape(approximation.shape)


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def exactly(ball_):
    """Midpoint and radius as fractions."""
    return tuple(Fraction(int(m), 1) * Fraction(2) ** int(e) for m, e in (ball_.mid().man_exp(), ball_.rad().man_exp()))
