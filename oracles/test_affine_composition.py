"""Composition of affine maps: its algebra, the rule run straight through, and its adjoint against differences."""

from itertools import pairwise

import jaxtyping
import numpy as np
import pytest
from flint import arb, arb_mat
from mpmath import mp

from oracles.affine_composition import ball, float64
from oracles.affine_composition import mp as mpmath_affine
from oracles.gated_delta_rule import ball as ball_rule
from oracles.gated_delta_rule import float64 as float64_rule
from oracles.gated_delta_rule import mp as mpmath_rule
from oracles.stream import Stream

U = 2.0**-53
RANKS, KEY_SIZE, VALUE_SIZE = 4, 3, 2
NAMES = ("A", "B", "initial_state", "dstates", "dfinal_state")


def random_maps(label):
    """A, B, initial state and both cotangents, of RANKS maps."""
    stream = Stream(f"affine/{label}")
    matrices, states = (RANKS, KEY_SIZE, KEY_SIZE), (RANKS, KEY_SIZE, VALUE_SIZE)
    shapes = (matrices, states, states[1:], states, states[1:])
    return {name: stream.normal(name, *shape) for name, shape in zip(NAMES, shapes, strict=True)}


def in_float64(maps):
    A, B, h0, *_ = maps.values()
    return *float64.incoming_states(A, B, h0), *float64.adjoint(*maps.values())


def in_mp(maps, digits=60):
    A, B, h0, *_ = maps.values()
    return *mpmath_affine.incoming_states(A, B, h0, digits=digits), *mpmath_affine.adjoint(
        *maps.values(), digits=digits
    )


def in_balls(maps, bits=250):
    A, B, h0, *_ = maps.values()
    return *ball.incoming_states(A, B, h0, bits=bits), *ball.adjoint(*maps.values(), bits=bits)


def flat(result):
    """The entries of an array, of a matrix, or of a list of matrices, in row-major order."""
    if isinstance(result, list):
        return [entry for matrix in result for entry in flat(matrix)]
    if isinstance(result, arb_mat):
        return result.entries()
    return result.ravel().tolist() if isinstance(result, np.ndarray) else list(result)


# Agreement


def test_the_three_agree_on_states_and_gradients():
    maps = random_maps("agree")
    results = zip(in_float64(maps), in_mp(maps), in_balls(maps), strict=True)
    for name, found in zip(("states", "final", "dA", "dB", "dh0"), results, strict=True):
        in64, in_mpmath, in_arb = (flat(result) for result in found)
        assert len(in64) == len(in_mpmath) == len(in_arb), name
        assert all(b.contains(arb(m)) for b, m in zip(in_arb, in_mpmath, strict=True)), name
        assert max(float(b.rad()) for b in in_arb) < 2.0**-230, name
        error = np.array([float(mp.mpf(x) - m) for x, m in zip(in64, in_mpmath, strict=True)])
        assert np.sqrt(np.mean(error**2)) <= 4 * U * np.sqrt(np.mean(np.square(in64))), name


def test_leading_dimensions_are_independent():
    stack = [random_maps("first"), random_maps("second")]
    together = in_float64({name: np.stack([maps[name] for maps in stack]) for name in NAMES})
    for i, maps in enumerate(stack):
        for whole, alone in zip(together, in_float64(maps), strict=True):
            np.testing.assert_allclose(whole[i], alone, rtol=1e-13, atol=1e-14)


# Algebra


def integer_pairs(label, count, size=9):
    """Maps with small integer entries, whose composition is exact in float64."""
    stream = Stream(f"integer pairs/{label}")
    A = stream.integers("A", 2 * size + 1, count, KEY_SIZE, KEY_SIZE) - float(size)
    B = stream.integers("B", 2 * size + 1, count, KEY_SIZE, VALUE_SIZE) - float(size)
    return A, B


def as_mp(pair):
    return tuple(mp.matrix(x) for x in pair)


def as_balls(pair):
    return tuple(arb_mat(x.tolist()) for x in pair)


COMPOSITIONS = {
    "float64": (float64.compose, lambda pair: pair),
    "mpmath": (lambda later, earlier: mpmath_affine.compose(later, earlier, digits=30), as_mp),
    "ball": (lambda later, earlier: ball.compose(later, earlier, bits=100), as_balls),
}


@pytest.mark.parametrize(("compose", "convert"), COMPOSITIONS.values(), ids=COMPOSITIONS.keys())
def test_composition_applies_the_earlier_map_first_and_is_associative(compose, convert):
    A, B = integer_pairs("algebra", 3)
    one, two, three = (convert((A[i], B[i])) for i in range(3))
    left, right = compose(compose(three, two), one), compose(three, compose(two, one))
    h = np.arange(1.0, 7.0).reshape(KEY_SIZE, VALUE_SIZE)
    straight = A[2] @ (A[1] @ (A[0] @ h + B[0]) + B[1]) + B[2]
    for composed_A, composed_B in (left, right):
        composed_A, composed_B = np.array(flat(composed_A)), np.array(flat(composed_B))
        through = composed_A.reshape(KEY_SIZE, KEY_SIZE) @ h + composed_B.reshape(KEY_SIZE, VALUE_SIZE)
        assert [float(x) for x in through.ravel()] == straight.ravel().tolist()
    assert [flat(x) for x in left] == [flat(x) for x in right]
    assert [flat(x) for x in compose(one, two)] != [flat(x) for x in compose(two, one)]


def test_incoming_states_are_an_exclusive_prefix():
    A, B = integer_pairs("prefix", RANKS)
    h0 = np.arange(1.0, 7.0).reshape(KEY_SIZE, VALUE_SIZE)
    expected = [h0]
    for r in range(RANKS):
        expected.append(A[r] @ expected[-1] + B[r])
    for states, final in (
        float64.incoming_states(A, B, h0),
        mpmath_affine.incoming_states(A, B, h0, digits=30),
        ball.incoming_states(A, B, h0, bits=100),
    ):
        assert [float(x) for x in flat(states)] == np.stack(expected[:-1]).ravel().tolist()
        assert [float(x) for x in flat(final)] == expected[-1].ravel().tolist()


def test_no_maps_leave_the_state_and_its_cotangent():
    maps = {name: x[:0] if x.ndim == 3 else x for name, x in random_maps("none").items()}
    for run in (in_float64, in_mp, in_balls):
        states, final, dA, dB, dh0 = (flat(result) for result in run(maps))
        assert states == dA == dB == []
        assert [float(x) for x in final] == flat(maps["initial_state"])
        assert [float(x) for x in dh0] == flat(maps["dfinal_state"])


# The map of a stretch of tokens


def sequence(label, tokens):
    stream = Stream(f"sequence/{label}")
    k = stream.normal("k", tokens, KEY_SIZE)
    return {
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": stream.normal("v", tokens, VALUE_SIZE),
        "g": -stream.uniform("g", tokens) / 2,
        "beta": 2 * stream.uniform("beta", tokens),
    }, stream.normal("h0", KEY_SIZE, VALUE_SIZE)


def stretches(tokens, bounds):
    edges = [0, *bounds, len(tokens["g"])]
    return [{name: x[a:b] for name, x in tokens.items()} for a, b in pairwise(edges)]


def test_transition_of_one_token_is_the_formula():
    """A = exp(g) (I - beta k k^T), B = beta k v^T."""
    k, v, g, beta = np.array([[0.5, -1, 2]]), np.array([[3.0, 0.25]]), np.array([np.log(0.5)]), np.array([0.5])
    A = 0.5 * (np.eye(3) - 0.5 * np.outer(k[0], k[0]))
    B = 0.5 * np.outer(k[0], v[0])
    for found in (
        float64.transition(k, v, g, beta),
        mpmath_affine.transition(k, v, g, beta, digits=30),
        ball.transition(k, v, g, beta, bits=100),
    ):
        for name, matrix, expected in zip("AB", found, (A, B), strict=True):
            np.testing.assert_allclose([float(x) for x in flat(matrix)], expected.ravel(), rtol=1e-15, err_msg=name)


# A stretch without tokens, one of a single token, and stretches of different lengths.
BOUNDS = (4, 4, 5)


def test_float64_prefix_is_the_rule_straight_through():
    tokens, h0 = sequence("straight", 12)
    pairs = [float64.transition(**part) for part in stretches(tokens, BOUNDS)]
    states, final = float64.incoming_states(*(np.stack(x) for x in zip(*pairs, strict=True)), h0)
    for end, found in zip((0, *BOUNDS, 12), (*states, final), strict=True):
        k, v, g, beta = (tokens[name][None, :end, None] for name in ("k", "v", "g", "beta"))
        _, expected = float64_rule.forward(k, k, v, g, beta, h0[None, None])
        np.testing.assert_allclose(found, expected[0, 0], rtol=0, atol=1e-14)


def test_mpmath_prefix_is_the_rule_straight_through():
    tokens, h0 = sequence("straight", 12)
    pairs = [mpmath_affine.transition(**part, digits=60) for part in stretches(tokens, BOUNDS)]
    states, final = mpmath_affine.incoming_states(*zip(*pairs, strict=True), h0, digits=60)
    for end, found in zip((0, *BOUNDS, 12), (*states, final), strict=True):
        k, v, g, beta = (tokens[name][:end] for name in ("k", "v", "g", "beta"))
        _, expected = mpmath_rule.forward(k, k, v, g, beta, h0, scale=None, digits=60)
        with mp.workdps(60):
            assert mp.mnorm(found - expected) < 1e-57


def test_ball_prefix_is_the_rule_straight_through():
    tokens, h0 = sequence("straight", 12)
    pairs = [ball.transition(**part, bits=250) for part in stretches(tokens, BOUNDS)]
    states, final = ball.incoming_states(*zip(*pairs, strict=True), h0, bits=250)
    for end, found in zip((0, *BOUNDS, 12), (*states, final), strict=True):
        k, v, g, beta = (tokens[name][:end] for name in ("k", "v", "g", "beta"))
        _, expected = ball_rule.forward(k, k, v, g, beta, h0, scale=None, bits=250)
        assert found.overlaps(expected)
        assert max(float(b.rad()) for b in flat(found)) < 2.0**-230


def test_composed_transitions_are_the_transition_of_the_whole():
    tokens, _ = sequence("whole", 9)
    first, second = stretches(tokens, (4,))
    with mp.workdps(60):
        composed = mpmath_affine.compose(
            mpmath_affine.transition(**second, digits=60), mpmath_affine.transition(**first, digits=60), digits=60
        )
        for found, expected in zip(composed, mpmath_affine.transition(**tokens, digits=60), strict=True):
            assert mp.mnorm(found - expected) < 1e-57


# The adjoint against what is not an adjoint


@pytest.mark.parametrize("name", NAMES[:3])
def test_mpmath_adjoint_is_the_central_difference_of_incoming_states(name):
    maps, step = random_maps("differences"), mp.mpf("1e-20")
    gradient = dict(zip(NAMES[:3], mpmath_affine.adjoint(*maps.values(), digits=70), strict=True))[name]

    def loss(inputs):
        states, final = mpmath_affine.incoming_states(*inputs, digits=70)
        cotangents = [mp.mpf(x) for x in (*flat(maps["dstates"]), *flat(maps["dfinal_state"]))]
        return mp.fdot(cotangents, (*flat(states), *flat(final)))

    for entry, claimed in zip(np.ndindex(maps[name].shape), flat(gradient), strict=True):
        with mp.workdps(70):
            losses = []
            for sign in (1, -1):
                inputs = {key: maps[key].astype(object) for key in NAMES[:3]}
                inputs[name][entry] = mp.mpf(maps[name][entry]) + sign * step
                losses.append(loss(inputs.values()))
            assert abs((losses[0] - losses[1]) / (2 * step) - claimed) < 1e-35, entry


# What is refused


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("A", (4, 3, 2), "A must have shape"),
        ("A", (3, 3, 3), "A must have shape"),
        ("A", (3, 3), "A must have shape"),
        ("B", (3, 2), "B must be"),
        ("initial_state", (2, 3), "initial_state must have shape"),
        ("initial_state", (4, 3, 2), "initial_state must have shape"),
        ("dstates", (4, 3, 3), "dstates must have shape"),
        ("dstates", (1, 3, 2), "dstates must have shape"),
        ("dfinal_state", (1, 2), "dfinal_state must have shape"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_float64_refuses_shapes_that_do_not_fit(name, shape, message):
    maps = random_maps("refused") | {name: np.zeros(shape)}
    with pytest.raises(ValueError, match=message):
        float64.adjoint(*maps.values())
    if not name.startswith("d"):
        with pytest.raises(ValueError, match=message):
            float64.incoming_states(*(maps[key] for key in NAMES[:3]))


@pytest.mark.parametrize("run", [in_mp, in_balls])
@pytest.mark.parametrize(("name", "shape"), [("A", (4, 3, 2)), ("B", (3, 3, 2)), ("dstates", (3, 3, 2))])
@pytest.mark.usefixtures("unchecked")
def test_mpmath_and_balls_refuse_what_does_not_fit(run, name, shape):
    with pytest.raises(ValueError, match=r"."):
        run(random_maps("refused") | {name: np.zeros(shape)})
