"""The three arithmetics of the rule against each other, against differences, against identities and known results."""

from fractions import Fraction
from itertools import pairwise

import jaxtyping
import numpy as np
import pytest
from flint import arb, arb_mat, ctx
from mpmath import mp

from oracles.conditioning import rms_response
from oracles.gated_delta_rule import GRADIENTS, INPUTS, OUTPUTS, QUANTITIES, ball, float64
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
    outputs = float64.forward(*(x[name] for name in INPUTS), scale=scale)
    return dict(zip(QUANTITIES, (*outputs, *float64.adjoint(*x.values(), scale=scale)), strict=True))


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


# Agreement


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


# The adjoint against what is not an adjoint


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


# Identities that need no oracle. They hold in any arithmetic, to its own rounding. The problem's numbers are such that
# the flipped, superposed and rotated problems are exact.


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


# Known results


def assert_exactly(expected, x, scale):
    """Bitwise in float64, and in mpmath and balls (of radius 0) the same numbers. One row, one head."""
    results = in_float64(x, scale), in_mp(one_head(x), scale), in_balls(one_head(x), scale)
    for name, numbers in expected.items():
        in64, in_mpmath, in_arb = (result[name] for result in results)
        flat = np.asarray(numbers, dtype=float).ravel().tolist()
        assert in64.ravel().tolist() == flat, name
        assert list(in_mpmath) == flat, name
        assert all(entry == arb(number) for entry, number in zip(in_arb.entries(), flat, strict=True)), name


def single_head(**arrays):
    """Batch layout of one row and head, from nested lists without those axes."""
    arrays = {name: np.asarray(array, dtype=float) for name, array in arrays.items()}
    return {name: a[None, None] if name in STATES else a[None, :, None] for name, a in arrays.items()}


def test_one_token_by_hand():
    x = single_head(
        q=[[2, 1]],
        k=[[0.5, -1]],
        v=[[2, 1]],
        g=[0],
        beta=[0.5],
        initial_state=[[1, 2], [3, 4]],
        do=[[1, 2]],
        dfinal_state=[[1, 0], [0, 1]],
    )
    # k^T h0 = [-2.5, -3], so v - k^T h0 = [4.5, 4] and e = [2.25, 2].
    # L = [[2, 2], [0.5, 2]] after the read and [[1.875, 2.25], [0.75, 1.5]] after the write; de = [0.5, -1].
    expected = {
        "o": [2.5, 4],
        "final_state": [[2.125, 3], [0.75, 2]],
        "dq": [4.0625, 2.375],
        "dk": [9.25, 6.375],
        "dv": [0.25, -0.5],
        "dg": [14.625],
        "dbeta": [-1.75],
        "dh0": [[1.875, 2.25], [0.75, 1.5]],
    }
    assert_exactly(expected, x, 0.5)


def test_orthonormal_keys_overwrite_rows_of_the_state():
    stream, tokens, size = Stream("orthonormal"), 12, 4
    slots = stream.integers("slots", size, tokens)

    def integers(label, *shape):
        return stream.integers(label, 19, *shape) - 9.0

    x = single_head(
        q=integers("q", tokens, size),
        k=np.eye(size)[slots],
        v=integers("v", tokens, 3),
        g=np.zeros(tokens),
        beta=np.ones(tokens),
        initial_state=integers("h0", size, 3),
        do=integers("do", tokens, 3),
        dfinal_state=integers("dht", size, 3),
    )
    h, o = x["initial_state"][0, 0].copy(), []
    for t, slot in enumerate(slots):
        h[slot] = x["v"][0, t, 0]
        o.append(0.5 * x["q"][0, t, 0] @ h)
    # A value receives what is read from its slot until the next write to it; the initial state until the first.
    L, dv = x["dfinal_state"][0, 0].copy(), np.empty((tokens, 3))
    for t in reversed(range(tokens)):
        L += 0.5 * np.outer(x["q"][0, t, 0], x["do"][0, t, 0])
        dv[t] = L[slots[t]]
        L[slots[t]] = 0
    assert_exactly({"o": o, "final_state": h, "dv": dv, "dh0": L}, x, None)


def test_an_infinite_decay_separates_what_follows_from_what_came_before():
    x = problem("forgets", tokens=5)
    x["g"][0, 2] = -np.inf
    before = {name: array if name in STATES else array[:, :2] for name, array in x.items()}
    before["dfinal_state"] = np.zeros_like(x["dfinal_state"])
    after = {name: array if name in STATES else array[:, 2:] for name, array in x.items()}
    after["initial_state"] = np.zeros_like(x["initial_state"])
    for run in (in_float64, lambda x: in_mp(one_head(x)), lambda x: in_balls(one_head(x))):
        whole, first, last = (
            {name: as_floats(value) for name, value in run(part).items()} for part in (x, before, after)
        )
        assert whole["final_state"] == last["final_state"]
        assert whole["dh0"] == first["dh0"]
        for name in ("o", "dq", "dk", "dv", "dg", "dbeta"):
            assert whole[name] == first[name] + last[name], name


def as_floats(result):
    if isinstance(result, np.ndarray):
        return result.ravel().tolist()
    return [float(entry) for entry in (result.entries() if isinstance(result, arb_mat) else result)]


def test_no_tokens_leave_the_state_and_its_cotangent():
    x = problem("empty", tokens=0)
    found, truth = in_float64(x), in_mp(one_head(x))
    assert found["o"].shape == x["v"].shape
    np.testing.assert_array_equal(found["final_state"], x["initial_state"])
    np.testing.assert_array_equal(found["dh0"], x["dfinal_state"])
    assert as_floats(truth["final_state"]) == as_floats(x["initial_state"])
    assert as_floats(truth["dh0"]) == as_floats(x["dfinal_state"])
    one = one_head(x)
    o, final_state = ball.forward(*(one[name] for name in INPUTS), scale=None, bits=64)
    assert (o.nrows(), o.ncols()) == (0, 2)
    assert as_floats(final_state) == as_floats(x["initial_state"])


# Precision of balls, and distance


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


def exactly(ball_):
    """Midpoint and radius as fractions."""
    return tuple(Fraction(int(m), 1) * Fraction(2) ** int(e) for m, e in (ball_.mid().man_exp(), ball_.rad().man_exp()))


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


# What is refused


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("q", (2, 5, 3), "q must be"),
        ("v", (2, 5, 4, 2, 1), "v \\[B, T, Hv, V\\]"),
        ("q", (2, 5, 3, 3), "multiple"),
        ("q", (2, 5, 0, 3), "multiple"),
        ("k", (2, 5, 2, 4), "k must have shape"),
        ("k", (1, 5, 2, 3), "k must have shape"),
        ("v", (2, 6, 4, 2), "v must have shape"),
        ("g", (2, 5, 2), "g must have shape"),
        ("beta", (2, 5, 4, 1), "beta must have shape"),
        ("initial_state", (2, 4, 2, 3), "initial_state must have shape"),
    ],
)
@pytest.mark.parametrize("call", ["forward", "adjoint"])
@pytest.mark.usefixtures("unchecked")
def test_float64_refuses_shapes_that_do_not_fit(call, name, shape, message):
    x = problem("refused", batch=2, key_heads=2, group=2)
    x[name] = np.zeros(shape)
    names = INPUTS if call == "forward" else x.keys()
    with pytest.raises(ValueError, match=message):
        getattr(float64, call)(*(x[key] for key in names))
