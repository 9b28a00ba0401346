"""Identities that need no oracle. They hold in any arithmetic, to its own rounding.

The numbers are such that the flipped, superposed and rotated problems are exact.
"""

import numpy as np
import pytest
from flint import ctx
from mpmath import mp

from oracles.gated_delta_rule import OUTPUTS, QUANTITIES
from oracles.gated_delta_rule.test_support import PER_KEY_HEAD, STATES, in_balls, in_float64, in_mp, one_head, problem
from oracles.stream import Stream


def evaluate(arithmetic, x):
    """Every quantity in the shapes of `float64`, its entries of the arithmetic's own type."""
    if arithmetic == "float64":
        return in_float64(x)
    batch, _, heads, _ = x["v"].shape
    run = in_mp if arithmetic == "mpmath" else in_balls
    results = [[run(one_head(x, row, head)) for head in range(heads)] for row in range(batch)]
    names = {"o": "v", "final_state": "initial_state", "dh0": "initial_state"}
    out = {name: np.zeros(x[names.get(name, name[1:])].shape, object) for name in QUANTITIES}
    group = heads // x["q"].shape[2]
    for row, head in np.ndindex(batch, heads):
        for name, matrix in results[row][head].items():
            entries = np.array(list(matrix) if arithmetic == "mpmath" else matrix.entries(), dtype=object)
            key_head = head // group
            at = (row, head) if name in ("final_state", "dh0") else (row, slice(None), head)
            at = (row, slice(None), key_head) if name in PER_KEY_HEAD else at
            out[name][at] += entries.reshape(out[name][at].shape)
    return out


def dot(x, y, **axes):
    return (x * y).sum(**axes)


@pytest.fixture(params=["float64", "mpmath", "ball"])
def arithmetic(request, monkeypatch):
    # What the tests themselves compute from the results must not spoil them.
    monkeypatch.setattr(mp, "dps", 80)
    monkeypatch.setattr(ctx, "prec", 200)
    return request.param


def assert_vanishes(x, arithmetic):
    tolerance = 2e-14 if arithmetic == "float64" else 1e-50
    worst = max(abs(entry) for entry in np.ravel(x))
    # Of balls: the whole ball lies within the tolerance, and holds zero.
    assert worst < tolerance
    assert arithmetic != "ball" or all(entry.contains(0) for entry in np.ravel(x))


def dyadic(x, bits=20):
    return np.round(x * 2.0**bits) / 2.0**bits


@pytest.fixture
def grouped():
    x = problem("identities", batch=2, tokens=6, key_heads=2, group=3, key_size=4)
    return x | {name: dyadic(x[name]) for name in ("v", "initial_state")}


@pytest.fixture
def result(arithmetic, grouped):
    return evaluate(arithmetic, grouped)


def by_group(x, heads_axis=2):
    """`[B, T, Hv, ...]` as `[B, T, Hk, group, ...]` with two key heads."""
    shape = x.shape
    return x.reshape(*shape[:heads_axis], 2, -1, *shape[heads_axis + 1 :])


def test_output_and_input_pairings_agree_per_head(arithmetic, grouped, result):
    """The outputs are linear in (v, h0): <do, o> + <dht, ht> = <dv, v> + <dh0, h0>."""
    per_token, per_state = (1, 3), (2, 3)
    outputs = dot(grouped["do"], result["o"], axis=per_token)
    outputs = outputs + dot(grouped["dfinal_state"], result["final_state"], axis=per_state)
    inputs = dot(result["dv"], grouped["v"], axis=per_token)
    inputs = inputs + dot(result["dh0"], grouped["initial_state"], axis=per_state)
    assert_vanishes(outputs - inputs, arithmetic)


def test_key_beta_and_value_gradients_balance_per_token(arithmetic, grouped, result):
    """(k, beta, v) -> (c k, beta / c^2, c v) changes nothing: <dk, k> - 2 beta dbeta + <dv, v> = 0."""
    keys = dot(result["dk"], grouped["k"], axis=-1)
    values = dot(result["dv"], grouped["v"], axis=-1) - 2 * grouped["beta"] * result["dbeta"]
    assert_vanishes(keys + by_group(values).sum(axis=-1), arithmetic)


def test_query_and_output_pairings_agree_per_token(arithmetic, grouped, result):
    """o is linear in q: <dq, q> = <do, o>, summed over the head group."""
    queries = dot(result["dq"], grouped["q"], axis=-1)
    outputs = by_group(dot(grouped["do"], result["o"], axis=-1)).sum(axis=-1)
    assert_vanishes(queries - outputs, arithmetic)


@pytest.mark.parametrize("arithmetic", ["float64", "mpmath"], indirect=True)
def test_gate_gradient_is_the_pairing_of_the_suffix_with_its_incoming_state(arithmetic, grouped, result):
    """g_t scales the state that enters token t: dg_t = <dh_in, h_{t-1}> of the run that starts there."""
    for t in range(grouped["v"].shape[1]):
        prefix = {name: array if name in STATES else array[:, :t] for name, array in grouped.items()}
        suffix = {name: array if name in STATES else array[:, t:] for name, array in grouped.items()}
        entering = evaluate(arithmetic, prefix)["final_state"] if t else grouped["initial_state"]
        dh_in = evaluate(arithmetic, suffix | {"initial_state": entering})["dh0"]
        assert_vanishes(dot(dh_in, entering, axis=(-2, -1)) - result["dg"][:, t], arithmetic)


def test_outputs_superpose_in_values_and_initial_state(arithmetic, grouped, result):
    stream = Stream("superposition")
    other = grouped | {name: dyadic(stream.normal(name, *grouped[name].shape)) for name in ("v", "initial_state")}
    both = grouped | {name: grouped[name] - 2 * other[name] for name in ("v", "initial_state")}
    one, two = evaluate(arithmetic, both), evaluate(arithmetic, other)
    for name in OUTPUTS:
        assert_vanishes(one[name] - (result[name] - 2 * two[name]), arithmetic)
    # What is linear in (v, h0) has a gradient that does not depend on them.
    for name in ("dv", "dh0"):
        assert_vanishes(one[name] - result[name], arithmetic)


def test_flipping_queries_keys_and_initial_state_flips_the_state_alone(arithmetic, grouped, result):
    flipped = evaluate(arithmetic, grouped | {name: -grouped[name] for name in ("q", "k", "initial_state")})
    assert_vanishes(flipped["o"] - result["o"], arithmetic)
    assert_vanishes(flipped["final_state"] + result["final_state"], arithmetic)


def test_rotating_key_space_rotates_the_state_alone(arithmetic, grouped, result):
    # A Hadamard matrix with its columns permuted: orthogonal in exact arithmetic, and no symmetric matrix.
    rotation = np.array([[1, 1, 1, 1], [1, -1, -1, 1], [-1, -1, 1, 1], [1, -1, 1, -1]]) / 2
    assert np.array_equal(rotation @ rotation.T, np.eye(4))
    turned = grouped | {name: grouped[name] @ rotation.T for name in ("q", "k")}
    turned = turned | {name: rotation @ grouped[name] for name in STATES}
    found = evaluate(arithmetic, turned)
    for name in ("o", "dv", "dg", "dbeta"):
        assert_vanishes(found[name] - result[name], arithmetic)
    for name in ("final_state", "dh0"):
        assert_vanishes(found[name] - rotation @ result[name], arithmetic)
    for name in ("dq", "dk"):
        assert_vanishes(found[name] - result[name] @ rotation.T, arithmetic)
