"""The four arithmetics of the UT transform against each other, against differences and against known inverses."""

import jaxtyping
import numpy as np
import pytest
from flint import arb, ctx, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from oracles.gated_delta_rule.ball import distance, enclose
from oracles.stream import Stream
from oracles.ut_inversion import ball, exact, float64
from oracles.ut_inversion import mp as mpmath_ut

U = 2.0**-53


def strictly_lower(label, size, *, magnitude=1.0):
    return np.tril(Stream("ut").normal(label, size, size) * magnitude, -1)


def chunk(label, size, *, common=0.0, beta=None, decay=1.0):
    """The S of a chunk of unit keys, `common` being how much of one vector they share."""
    stream = Stream(f"chunk/{label}")
    keys = common * stream.normal("common", 1, 8) + (1 - common) * stream.normal("keys", size, 8)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    beta = stream.uniform("beta", size) if beta is None else np.full(size, beta)
    return float64.ut_matrix(keys, -decay * stream.uniform("g", size), beta)


CASES = {
    "normal": strictly_lower("normal", 7),
    "large": strictly_lower("large", 6, magnitude=100.0),
    "typical": chunk("typical", 16),
    "correlated": chunk("correlated", 16, common=0.95, beta=1.0, decay=1e-3),
    "beta_near_two": chunk("near two", 12, common=0.9, beta=1.9, decay=0.0),
    "one": np.zeros((1, 1)),
    "two": np.array([[0, 0], [0.1, 0]]),
}
each_case = pytest.mark.parametrize("S", CASES.values(), ids=CASES.keys())


def cotangent(S):
    return Stream("ut").normal("dT", *S.shape)


def condition(S, T):
    """`|T| |I + S| |T|`, entry by entry: what one roundoff in every operation of a substitution can do to T."""
    return np.abs(T) @ (np.eye(len(S)) + np.abs(S)) @ np.abs(T)


# Agreement


@each_case
def test_float64_is_within_a_few_roundoffs_of_the_rational_inverse(S):
    T = float64.inverse(S)
    difference = exact.rationals(T) - exact.inverse(S)
    error = np.abs([int(x.p) / int(x.q) for x in difference.entries()]).reshape(S.shape)
    assert np.all(error <= 4 * U * condition(S, T))


@each_case
def test_float64_adjoint_is_within_a_few_roundoffs_of_the_rational_adjoint(S):
    T, dT = float64.inverse(S), cotangent(S)
    error = distance(float64.adjoint(T, dT), ball.adjoint(ball.inverse(S, bits=400), dT, bits=400))
    through_T = condition(S, T).T @ np.abs(dT) @ np.abs(T).T
    through_T += np.abs(T).T @ np.abs(dT) @ condition(S, T).T
    assert np.all(error <= 4 * U * np.tril(through_T, -1))


@each_case
def test_mpmath_is_the_rational_inverse_and_adjoint_to_its_digits(S):
    T, dS = exact.inverse(S), exact.adjoint(exact.inverse(S), cotangent(S))
    T_mp = mpmath_ut.inverse(S, digits=60)
    for found, truth in ((T_mp, T), (mpmath_ut.adjoint(T_mp, cotangent(S), digits=60), dS)):
        with mp.workdps(80):
            rationals = [mp.mpf(int(x.p)) / mp.mpf(int(x.q)) for x in truth.entries()]
            worst = max(abs(x - y) for x, y in zip(found, rationals, strict=True))
            assert worst <= mp.mpf(10) ** -50 * (1 + max(abs(x) for x in rationals))


@each_case
def test_balls_contain_the_rational_inverse_and_adjoint(S):
    T, dS = exact.inverse(S), exact.adjoint(exact.inverse(S), cotangent(S))
    for bits in (20, 300):
        balls = ball.inverse(S, bits=bits)
        for enclosure, truth in ((balls, T), (ball.adjoint(balls, cotangent(S), bits=bits), dS)):
            with ctx.workprec(10_000):  # enough to hold the rationals, which are dyadic
                points = [arb(x) for x in truth.entries()]
            assert all(x.is_exact() for x in points)
            assert all(b.contains(x) for b, x in zip(enclosure.entries(), points, strict=True))
            assert bits < 300 or max(float(b.rad()) for b in enclosure.entries()) < 2.0**-200


def test_enclose_finds_the_precision_of_an_ill_conditioned_inverse():
    # One key, beta 1.99, no decay: entries alternate in sign and shrink, powers of S reach 1e36.
    S = float64.ut_matrix(np.ones((64, 1)), np.zeros(64), np.full(64, 1.99))
    (T,), bits = enclose(lambda bits: (ball.inverse(S, bits=bits),), bits=8)
    assert bits > 64
    assert np.max(distance(float64.inverse(S), T)) < 1e-13


def test_leading_dimensions_are_independent():
    stack = np.stack([[strictly_lower(f"{i}{j}", 5) for j in range(3)] for i in range(2)])
    dT = Stream("ut").normal("stack", *stack.shape)
    T = float64.inverse(stack)
    dS = float64.adjoint(T, dT)
    for at in np.ndindex(2, 3):
        np.testing.assert_allclose(T[at], float64.inverse(stack[at]), rtol=1e-14)
        np.testing.assert_allclose(dS[at], float64.adjoint(T[at], dT[at]), rtol=1e-13)


# Known inverses


@st.composite
def integer_matrices(draw):
    """Small enough that every intermediate of a substitution is an integer below 2^53."""
    size = draw(st.integers(1, 6))
    entries = draw(st.lists(st.integers(-9, 9), min_size=size * size, max_size=size * size))
    return np.tril(np.array(entries, dtype=float).reshape(size, size), -1)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(S=integer_matrices())
def test_all_four_are_exact_where_every_intermediate_is_an_integer(S):
    T = exact.inverse(S)
    identity = fmpq_mat(np.eye(len(S), dtype=int).tolist())
    assert T * (identity + exact.rationals(S)) == identity
    assert exact.rationals(float64.inverse(S)) == T
    assert list(mpmath_ut.inverse(S, digits=30)) == float64.inverse(S).ravel().tolist()
    assert all(b == arb(x) for b, x in zip(ball.inverse(S, bits=100).entries(), T.entries(), strict=True))

    dT = Stream("ut").integers("integer dT", 19, *S.shape) - 9.0
    assert exact.rationals(float64.adjoint(float64.inverse(S), dT)) == exact.adjoint(T, dT)


def test_all_ones_has_a_bidiagonal_inverse():
    S = np.tril(np.ones((20, 20)), -1)
    bidiagonal = np.eye(20) - np.eye(20, k=-1)
    np.testing.assert_array_equal(float64.inverse(S), bidiagonal)
    assert exact.inverse(S) == exact.rationals(bidiagonal)
    assert list(mpmath_ut.inverse(S, digits=20)) == bidiagonal.ravel().tolist()
    assert [float(x) for x in ball.inverse(S, bits=60).entries()] == bidiagonal.ravel().tolist()


def test_one_repeated_key_with_beta_one_has_a_bidiagonal_inverse():
    """Whatever the decay: T_{i+1,i} = -exp(g_{i+1}), all else 0, while powers of S reach 1e36."""
    size = 128
    g = -Stream("repeated").uniform("g", size) / 64
    key = np.array([0.5, 0.5, -0.5, 0.5])
    S = float64.ut_matrix(np.tile(key, (size, 1)), g, np.ones(size))
    expected = np.eye(size) - np.diag(np.exp(g[1:]), -1)
    np.testing.assert_allclose(float64.inverse(S), expected, atol=1e-13)


def test_a_single_entry_is_negated():
    S = np.zeros((5, 5))
    S[3, 1] = 0.1
    np.testing.assert_array_equal(float64.inverse(S), np.eye(5) - S)
    dT = np.arange(25.0).reshape(5, 5) + 1
    # -(I - S^T) dT (I - S^T) adds row 3 of dT to row 1 and column 1 to column 3, a tenth of each.
    expected = -np.tril(dT, -1)
    expected[1, 0] += 0.1 * dT[3, 0]
    expected[4, 3] += 0.1 * dT[4, 1]
    np.testing.assert_allclose(float64.adjoint(float64.inverse(S), dT), expected, rtol=1e-15)


# The adjoint against what is not an adjoint


@pytest.mark.parametrize("case", ["normal", "two", "large", "beta_near_two"])
def test_mpmath_adjoint_is_the_central_difference_of_mpmath_inverse(case):
    S, step = CASES[case], mp.mpf("1e-20")
    dT = cotangent(S)
    dS = mpmath_ut.adjoint(mpmath_ut.inverse(S, digits=80), dT, digits=80)
    for i, j in np.ndindex(S.shape):
        if j >= i:
            assert dS[i, j] == 0
            continue
        with mp.workdps(80):
            losses = []
            for sign in (1, -1):
                moved = S.astype(object)
                moved[i, j] = mp.mpf(S[i, j]) + sign * step
                losses.append(mp.fdot(mp.matrix(dT), mpmath_ut.inverse(moved, digits=80)))
            assert abs((losses[0] - losses[1]) / (2 * step) - dS[i, j]) < 1e-35 * mp.mnorm(dS)


# S of a chunk


def test_ut_matrix_is_its_definition_entry_by_entry():
    stream, size = Stream("definition"), 6
    k, g = stream.normal("k", 2, 3, size, 4), -stream.uniform("g", 2, 3, size)
    beta = stream.uniform("beta", 2, 3, size)
    S = float64.ut_matrix(k, g, beta)
    assert S.shape == (2, 3, size, size)
    for b, h, i, j in np.ndindex(S.shape):
        decay = np.exp(g[b, h, j + 1 : i + 1].sum())
        expected = beta[b, h, i] * (k[b, h, i] @ k[b, h, j]) * decay if i > j else 0.0
        np.testing.assert_allclose(S[b, h, i, j], expected, rtol=1e-13)


def test_ut_matrix_of_strong_decay_neither_overflows_nor_loses_a_neighbour():
    g = np.full(64, -20.0)
    with np.errstate(all="raise", under="ignore"):
        S = float64.ut_matrix(np.ones((64, 1)), g, np.ones(64))
    assert np.all(np.isfinite(S))
    np.testing.assert_allclose(np.diag(S, -1), np.exp(-20.0), rtol=1e-12)
    assert np.all(np.triu(S) == 0)


# What is refused


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


INVERSES = {
    "float64": float64.inverse,
    "mpmath": lambda S: mpmath_ut.inverse(S, digits=20),
    "ball": lambda S: ball.inverse(S, bits=60),
    "exact": exact.inverse,
}
each_inverse = pytest.mark.parametrize("inverse", INVERSES.values(), ids=INVERSES.keys())


@each_inverse
@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2)])
@pytest.mark.usefixtures("unchecked")
def test_a_matrix_that_is_not_square_is_refused(inverse, shape):
    with pytest.raises(ValueError, match="square"):
        inverse(np.zeros(shape))


@each_inverse
@pytest.mark.parametrize(("row", "column"), [(1, 1), (0, 2), (2, 2)])
@pytest.mark.parametrize("value", [1e-300, np.nan])
def test_a_matrix_with_an_entry_on_or_above_the_diagonal_is_refused(inverse, row, column, value):
    S = np.tril(np.ones((3, 3)), -1)
    S[row, column] = value
    with pytest.raises(ValueError, match=rf"strictly lower triangular; got S\[{row}, {column}\] = {value}"):
        inverse(S)


def test_the_message_names_the_entry_of_a_stack():
    S = np.zeros((2, 3, 3))
    S[1, 0, 2] = 5.0
    with pytest.raises(ValueError, match=r"S\[1, 0, 2\] = 5"):
        float64.inverse(S)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rationals_must_be_finite(value):
    with pytest.raises(ValueError, match="not finite"):
        exact.inverse(np.array([[0, 0], [value, 0]]))


@pytest.mark.parametrize(
    "adjoint",
    [
        lambda S, dT: float64.adjoint(float64.inverse(S), dT),
        lambda S, dT: mpmath_ut.adjoint(mpmath_ut.inverse(S, digits=20), dT, digits=20),
        lambda S, dT: ball.adjoint(ball.inverse(S, bits=60), dT, bits=60),
        lambda S, dT: exact.adjoint(exact.inverse(S), dT),
    ],
    ids=INVERSES.keys(),
)
@pytest.mark.parametrize("shape", [(1, 3), (3,), (4, 4), (1, 3, 3)])
@pytest.mark.usefixtures("unchecked")
def test_a_cotangent_of_another_shape_is_refused(adjoint, shape):
    with pytest.raises(ValueError, match=r"the shape of T, \(3, 3\)"):
        adjoint(np.zeros((3, 3)), np.zeros(shape))
