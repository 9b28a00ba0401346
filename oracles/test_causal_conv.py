"""The three arithmetics of the causal convolution against each other, by hand, and its adjoint against differences."""

import jaxtyping
import numpy as np
import pytest
from flint import arb
from mpmath import mp

from oracles.causal_conv import ball, float64
from oracles.causal_conv import mp as mpmath_conv
from oracles.stream import Stream

U = 2.0**-53
INPUTS = ("x", "weight", "initial_state")
NAMES = (*INPUTS, "dy", "dfinal_state")
OUTPUTS = ("y", "final_state", "dx", "dweight", "dinitial_state")

# Rows, tokens, channels, taps: among them fewer tokens than a state has, one of everything, and a single tap.
SHAPES = [(2, 9, 3, 4), (2, 2, 3, 4), (1, 3, 2, 4), (1, 1, 1, 4), (2, 1, 2, 5), (2, 5, 1, 1), (3, 4, 2, 2)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "b{}t{}d{}w{}".format(*shape))


def sizes(B, T, D, W):
    return {
        "x": (B, T, D),
        "weight": (D, W),
        "initial_state": (B, W - 1, D),
        "dy": (B, T, D),
        "dfinal_state": (B, W - 1, D),
    }


def drawn(label, shape):
    stream = Stream(f"causal conv/{label}/{shape}")
    return {name: stream.normal(name, *size) for name, size in sizes(*shape).items()}


def in_float64(arguments):
    """All outputs, `[channels, ...]`, as the other two are asked for them: one channel at a time."""
    x, weight, state, *_ = arguments.values()
    results = (*float64.forward(x, weight, state), *float64.adjoint(*arguments.values()))
    return [y if name == "dweight" else np.moveaxis(y, 2, 0) for name, y in zip(OUTPUTS, results, strict=True)]


def by_channel(arguments):
    for d in range(len(arguments["weight"])):
        yield [y[d] if name == "weight" else y[..., d] for name, y in arguments.items()]


def in_mp(arguments, digits=60):
    channels = [
        (*mpmath_conv.forward(*one[:3], digits=digits), *mpmath_conv.adjoint(*one, digits=digits))
        for one in by_channel(arguments)
    ]
    return [[entry for matrix in matrices for entry in matrix] for matrices in zip(*channels, strict=True)]


def in_balls(arguments, bits=250):
    channels = [(*ball.forward(*one[:3], bits=bits), *ball.adjoint(*one, bits=bits)) for one in by_channel(arguments)]
    return [[entry for matrix in matrices for entry in matrix.entries()] for matrices in zip(*channels, strict=True)]


# Agreement


@each_shape
def test_the_three_agree_on_outputs_and_gradients(shape):
    arguments = drawn("agree", shape)
    magnitudes = in_float64({name: np.abs(x) for name, x in arguments.items()})  # no term cancels in these
    results = zip(in_float64(arguments), in_mp(arguments), in_balls(arguments), magnitudes, strict=True)
    for name, (in64, in_mpmath, in_arb, magnitude) in zip(OUTPUTS, results, strict=True):
        assert in64.size == len(in_mpmath) == len(in_arb), name
        assert all(b.contains(arb(m)) for b, m in zip(in_arb, in_mpmath, strict=True)), name
        assert all(float(b.rad()) < 2.0**-230 for b in in_arb), name
        error = np.array([float(mp.mpf(y) - m) for y, m in zip(in64.ravel().tolist(), in_mpmath, strict=True)])
        assert np.all(np.abs(error) <= 8 * U * magnitude.ravel()), name


def test_balls_of_few_bits_contain_what_many_bits_say():
    arguments = drawn("bits", (2, 5, 2, 4))
    coarse, fine = in_balls(arguments, bits=20), in_balls(arguments, bits=400)
    for wide, narrow in zip(coarse, fine, strict=True):
        assert all(a.contains(b) for a, b in zip(wide, narrow, strict=True))
    assert any(float(a.rad()) > 2.0**-25 for wide in coarse for a in wide)


def test_rows_and_channels_are_independent():
    arguments = drawn("independent", (2, 6, 3, 4))
    together = float64.forward(*(arguments[name] for name in INPUTS))
    for b in range(2):
        for d in range(3):
            alone = float64.forward(
                arguments["x"][b : b + 1, :, d : d + 1],
                arguments["weight"][d : d + 1],
                arguments["initial_state"][b : b + 1, :, d : d + 1],
            )
            for whole, part in zip(together, alone, strict=True):
                np.testing.assert_array_equal(whole[b, :, d], part[0, :, 0])


# By hand


def results_of_integers(x, weight, state, dy, dfinal):
    """All outputs of one row and channel in each arithmetic, as floats: integers are exact in all of them."""
    arguments = {
        "x": np.array(x, dtype=float)[None, :, None],
        "weight": np.array(weight, dtype=float)[None],
        "initial_state": np.array(state, dtype=float)[None, :, None],
        "dy": np.array(dy, dtype=float)[None, :, None],
        "dfinal_state": np.array(dfinal, dtype=float)[None, :, None],
    }
    for run in (in_float64, in_mp, in_balls):
        results = (np.ravel(y).tolist() if isinstance(y, np.ndarray) else y for y in run(arguments))
        yield dict(zip(OUTPUTS, ([float(entry) for entry in y] for y in results), strict=True))


def test_three_tokens_by_hand():
    for found in results_of_integers([1, 2, 3], [1, 10, 100], [7, 5], [1, 2, 4], [1000, 2000]):
        assert found == {
            "y": [7 + 50 + 100, 5 + 10 + 200, 1 + 20 + 300],
            "final_state": [2, 3],
            "dx": [100 + 20 + 4, 200 + 40 + 1000, 400 + 2000],
            "dweight": [7 + 2 * 5 + 4 * 1, 5 + 2 * 1 + 4 * 2, 1 + 2 * 2 + 4 * 3],
            "dinitial_state": [1, 10 + 2],
        }


def test_a_state_that_is_longer_than_the_sequence_keeps_what_it_had():
    for found in results_of_integers([2], [1, 10, 100, 1000], [7, 5, 3], [1], [10, 20, 30]):
        assert found == {
            "y": [7 + 50 + 300 + 2000],
            "final_state": [5, 3, 2],
            "dx": [1000 + 30],
            "dweight": [7, 5, 3, 2],
            "dinitial_state": [1, 10 + 10, 100 + 20],
        }


def test_no_tokens_leave_the_state_and_its_cotangent():
    for found in results_of_integers([], [1, 10, 100], [7, 5], [], [3, 4]):
        assert found == {"y": [], "final_state": [7, 5], "dx": [], "dweight": [0, 0, 0], "dinitial_state": [3, 4]}


@pytest.mark.parametrize("cut", [0, 1, 3, 8, 9])
def test_two_stretches_in_turn_are_the_whole(cut):
    """The final state of the first is the initial state of the second, whatever their lengths."""
    x, weight, state, *_ = drawn("stretches", (2, 9, 3, 4)).values()
    y, final_state = float64.forward(x, weight, state)
    first, between = float64.forward(x[:, :cut], weight, state)
    second, after = float64.forward(x[:, cut:], weight, between)
    np.testing.assert_array_equal(np.concatenate([first, second], axis=1), y)
    np.testing.assert_array_equal(after, final_state)


# The adjoint against what is not an adjoint


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("shape", [(2, 5, 1, 4), (1, 2, 1, 4)], ids=["longer_than_the_state", "shorter"])
def test_mpmath_adjoint_is_the_central_difference_of_forward(name, shape):
    (one,), step = by_channel(drawn("differences", shape)), mp.mpf("1e-20")
    channel = dict(zip(NAMES, one, strict=True))
    gradient = dict(zip(INPUTS, mpmath_conv.adjoint(*one, digits=70), strict=True))[name]

    def loss(inputs):
        outputs = mpmath_conv.forward(*inputs.values(), digits=70)
        cotangents = [*channel["dy"].ravel().tolist(), *channel["dfinal_state"].ravel().tolist()]
        return mp.fdot([mp.mpf(c) for c in cotangents], [entry for matrix in outputs for entry in matrix])

    for entry, claimed in zip(np.ndindex(channel[name].shape), gradient, strict=True):
        with mp.workdps(70):
            losses = []
            for sign in (1, -1):
                inputs = {key: channel[key].astype(object) for key in INPUTS}
                inputs[name][entry] = mp.mpf(channel[name][entry]) + sign * step
                losses.append(loss(inputs))
            assert abs((losses[0] - losses[1]) / (2 * step) - claimed) < 1e-35, entry


# What is refused


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


WRONG = [
    ("x", (2, 6), r"x must be \[B, T, D\]"),
    ("weight", (4,), r"x must be \[B, T, D\] and weight \[D, W\]"),
    ("weight", (2, 4), "each of the 3 channels"),
    ("weight", (3, 0), "W > 0 taps"),
    ("initial_state", (2, 4, 3), r"initial_state must have shape \(2, 3, 3\)"),
    ("initial_state", (1, 3, 3), r"initial_state must have shape \(2, 3, 3\)"),
    ("dy", (2, 5, 3), r"dy must have shape \(2, 6, 3\)"),
    ("dfinal_state", (2, 3, 1), r"dfinal_state must have shape \(2, 3, 3\)"),
]


@pytest.mark.parametrize(("name", "shape", "message"), WRONG)
@pytest.mark.usefixtures("unchecked")
def test_float64_refuses_shapes_that_do_not_fit(name, shape, message):
    arguments = drawn("refused", (2, 6, 3, 4)) | {name: np.zeros(shape)}
    with pytest.raises(ValueError, match=message):
        float64.adjoint(*arguments.values())
    if name in INPUTS:
        with pytest.raises(ValueError, match=message):
            float64.forward(*(arguments[key] for key in INPUTS))


@pytest.mark.parametrize("run", [in_mp, in_balls])
@pytest.mark.parametrize(("name", "shape"), [("initial_state", (2, 4, 3)), ("dy", (2, 5, 3)), ("dy", (1, 6, 3))])
@pytest.mark.usefixtures("unchecked")
def test_mpmath_and_balls_refuse_shapes_that_do_not_fit(run, name, shape):
    with pytest.raises(ValueError, match=f"{name} must have shape"):
        run(drawn("refused", (2, 6, 3, 4)) | {name: np.zeros(shape)})
