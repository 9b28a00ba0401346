"""The layer's two arithmetics against each other, its adjoint against differences, and what its kappa is made of."""

import math
from itertools import pairwise

import jaxtyping
import numpy as np
import pytest
from mpmath import mp

from oracles.conditioning import decay_gradient_terms, rms_response
from oracles.gated_delta_net import (
    ARGUMENTS,
    COTANGENTS,
    GRADIENTS,
    INPUTS,
    OUTPUTS,
    PARAMETERS,
    QUANTITIES,
    cotangents_of,
    flattened,
    float64,
    inputs_of,
    parts,
    shapes,
)
from oracles.gated_delta_net import mp as mpmath_layer
from oracles.gated_delta_net.conditioned import conditioned
from oracles.stream import Stream

U = 2.0**-53
PER_ROW = ("x", "y", *(name for name in (*INPUTS, *OUTPUTS) if "state" in name))
STATES = tuple(name for name in INPUTS if "state" in name)

SMALL = {"B": 1, "T": 6, "D": 3, "Hk": 1, "Hv": 3, "K": 2, "V": 3, "W": 4}
SIZES = {
    "small": SMALL,
    "grouped": SMALL | {"B": 2, "T": 5, "Hk": 2, "Hv": 6},
    "shorter_than_the_taps": SMALL | {"T": 2},
    "one_token": SMALL | {"T": 1, "Hv": 1, "K": 3, "V": 2},
    "no_tokens": SMALL | {"T": 0},
    "one_tap": SMALL | {"B": 2, "T": 3, "W": 1},
}
each_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())

OF_THE_RULE = ("o", "do", "beta", "dbeta")

# Ids may recur; the last documents of both rows are shorter than the conv state, and no two rows have the same cuts.
DOCUMENTS = np.array([[3, 3, 5, 3, 3, 3, 8], [0, 0, 0, 0, 1, 1, 1]])
PACKED = SMALL | {"B": 2, "T": 7}


def drawn(label, **sizes):
    """All arguments, standard normal but for the parameters of the gates, which give decays as of trained models."""
    stream = Stream(f"gated delta net/{label}")
    x = {name: stream.normal(name, *shape) for name, shape in shapes(**sizes).items()}
    x["A_log"] = np.log(1 + 3 * stream.uniform("A_log", sizes["Hv"]))
    x["dt_bias"] = x["dt_bias"] - 3
    return x


def in_float64(x, **kwargs):
    results = float64.forward_and_adjoint(*inputs_of(x), *cotangents_of(x), **kwargs)
    return dict(zip(QUANTITIES, flattened(results), strict=True))


def in_mp(x, segment_ids=None, digits=40):
    """Each row's `OUTPUTS`."""
    for row in range(len(x["x"])):
        one = {name: value[row] if name in PER_ROW else value for name, value in x.items()}
        ids = None if segment_ids is None else segment_ids[row]
        results = flattened(mpmath_layer.forward(*inputs_of(one), segment_ids=ids, digits=digits))
        yield dict(zip(OUTPUTS, results, strict=True))


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


# Agreement


def assert_outputs_agree(x, segment_ids=None):
    values, kappa = conditioned(x, name="agreement", segment_ids=segment_ids)
    for row, truth in enumerate(in_mp(x, segment_ids)):
        for name in OUTPUTS:
            assert truth[name].shape == values[name][row].shape, name
            with mp.workdps(40):
                error = (values[name][row] - truth[name]).astype(float)
            if error.size:
                assert rms(error) <= 2 * U * (rms(kappa[name]) + rms(values[name])), name


@each_size
def test_float64_is_within_a_few_roundoffs_of_mpmath(sizes):
    assert_outputs_agree(drawn("agree", **sizes))


def test_float64_is_within_a_few_roundoffs_of_mpmath_with_documents():
    assert_outputs_agree(drawn("agree with documents", **PACKED), DOCUMENTS)


@each_size
def test_forward_is_that_of_both_and_all_results_have_the_shapes_of_their_arguments(sizes):
    x = drawn("both", **sizes)
    values, expected = in_float64(x), shapes(**sizes)
    for name, output in zip(OUTPUTS, flattened(float64.forward(*inputs_of(x))), strict=True):
        np.testing.assert_array_equal(output, values[name])
        assert output.shape == expected[f"d{name}"]
    assert [values[name].shape for name in GRADIENTS] == [expected[name] for name in INPUTS]


def test_the_order_of_the_parameters_in_their_dict_does_not_matter():
    x = drawn("order", **SMALL)
    others, shuffled = inputs_of(x), dict(reversed(inputs_of(x)[1].items()))
    backwards = float64.forward_and_adjoint(others[0], shuffled, *others[2:], *cotangents_of(x))
    for one, two in zip(in_float64(x).values(), flattened(backwards), strict=True):
        np.testing.assert_array_equal(one, two)


def test_mpmath_delivers_the_digits_it_was_asked_for():
    x = drawn("digits", **SMALL)
    (coarse,), (fine,) = in_mp(x, digits=30), in_mp(x, digits=60)
    with mp.workdps(60):
        worst = max(np.max(np.abs(coarse[name] - fine[name])) for name in ("y", "final_recurrent_state"))
        assert 1e-32 < worst < 1e-26


def test_one_token_by_hand():
    """Everything of size one, and no state: one write, one read, the gate after the norm."""
    x = dict.fromkeys(ARGUMENTS, 0.0) | {"x": 1.0, "q": 0.5, "k": -0.7, "v": 0.3, "z": 0.9, "a": 0.2, "b": 0.4}
    x |= {"conv_q": 0.1, "conv_k": 2.0, "conv_v": -3.0, "A_log": 0.6, "dt_bias": 0.8, "norm": 1.1, "out": -1.3}
    x |= {"recurrent_state": 0.05}
    sizes = dict.fromkeys(("B", "T", "D", "Hk", "Hv", "K", "V", "W"), 1)
    values = in_float64({name: np.full(shape, x[name]) for name, shape in shapes(**sizes).items()})

    def silu(x):
        return x / (1 + math.exp(-x))

    q, k, v = silu(0.5 * 0.1), silu(-0.7 * 2), silu(0.3 * -3)
    q, k = q / math.sqrt(q**2 + 1e-6), k / math.sqrt(k**2 + 1e-6)
    h = 0.05 * math.exp(-math.exp(0.6) * math.log(1 + math.exp(0.2 + 0.8)))
    h += k * (v - h * k) / (1 + math.exp(-0.4))
    o = h * q
    assert values["y"].item() == pytest.approx(-1.3 * 1.1 * o / math.sqrt(o**2 + 1e-6) * silu(0.9), rel=1e-14)
    assert values["final_recurrent_state"].item() == pytest.approx(h, rel=1e-14)


# The adjoint against what is not an adjoint


def loss(x, segment_ids):
    """The outputs in mpmath against their cotangents, over all rows."""
    total = mp.mpf(0)
    for row, outputs in enumerate(in_mp(x, segment_ids)):
        for name, output in outputs.items():
            total += mp.fdot([mp.mpf(c) for c in x[f"d{name}"][row].ravel()], output.ravel())
    return total


def assert_is_the_difference(x, values, kappa, name, direction, segment_ids=None):
    """The derivative of `loss` along `direction` of one input, by central differences with a far smaller step."""
    with mp.workdps(40):
        step, losses = mp.mpf("1e-12"), []
        for sign in (1, -1):
            moved = x[name].astype(object) + sign * step * direction.astype(int).astype(object)
            losses.append(loss(x | {name: moved}, segment_ids))
        difference = (losses[0] - losses[1]) / (2 * step)
        claimed = mp.fdot([mp.mpf(d) for d in direction.ravel()], [mp.mpf(v) for v in values[f"d{name}"].ravel()])
        allowed = 4 * U * np.sqrt(np.sum((np.abs(direction) * (kappa[f"d{name}"] + np.abs(values[f"d{name}"]))) ** 2))
        assert abs(difference - claimed) <= allowed, (name, difference, claimed)


@pytest.fixture(scope="module")
def grouped():
    x = drawn("differences", **SIZES["grouped"])
    return x, *conditioned(x, name="differences")


@pytest.fixture(scope="module")
def small():
    x = drawn("elements", **SMALL)
    return x, *conditioned(x, name="elements")


@pytest.fixture(scope="module")
def packed():
    x = drawn("differences with documents", **PACKED)
    return x, *conditioned(x, name="differences with documents", segment_ids=DOCUMENTS)


def signs(name, x):
    return Stream(f"gated delta net/direction/{name}").signs("", *x.shape)


@pytest.mark.parametrize("name", INPUTS)
def test_adjoint_is_the_central_difference_of_mpmath_forward(grouped, name):
    """In a direction that moves every element."""
    x, values, kappa = grouped
    assert_is_the_difference(x, values, kappa, name, signs(name, x[name]))


@pytest.mark.parametrize("name", INPUTS)
def test_single_elements_of_the_adjoint_are_central_differences(small, name):
    x, values, kappa = small
    for at in Stream(f"gated delta net/elements/{name}").integers("", x[name].size, 2):
        direction = np.zeros(x[name].shape)
        direction.flat[at] = 1
        assert_is_the_difference(x, values, kappa, name, direction)


@pytest.mark.parametrize("name", INPUTS)
def test_adjoint_with_documents_is_the_central_difference_of_mpmath_forward(packed, name):
    x, values, kappa = packed
    assert_is_the_difference(x, values, kappa, name, signs(name, x[name]), DOCUMENTS)


# Documents


def documents_of(ids):
    """`(first, behind)` of each document of a row."""
    return list(pairwise([0, *(np.flatnonzero(np.diff(ids)) + 1), len(ids)]))


def one_by_one(x, row, ids):
    """What the documents of a row give, each run on its own: the row's outputs and gradients."""
    spans, results = documents_of(ids), []
    for first, behind in spans:
        one = {name: value[row : row + 1] if name.removeprefix("d") in PER_ROW else value for name, value in x.items()}
        one |= {name: one[name][:, first:behind] for name in ("x", "dy")}
        if first > 0:
            one |= {name: np.zeros_like(one[name]) for name in STATES}
        if behind < len(ids):
            one |= {name: np.zeros_like(one[name]) for name in COTANGENTS if "state" in name}
        results.append(in_float64(one))
    whole = {name: np.concatenate([result[name] for result in results], axis=1) for name in ("y", "dx")}
    whole |= {name: results[-1][name] for name in OUTPUTS[1:]}
    whole |= {f"d{name}": results[0][f"d{name}"] for name in STATES}
    return whole | {f"d{name}": sum(result[f"d{name}"] for result in results) for name in PARAMETERS}


def test_packed_documents_are_documents_run_one_by_one():
    x = drawn("packed", **PACKED)
    found = in_float64(x, segment_ids=DOCUMENTS)
    rows = [one_by_one(x, row, DOCUMENTS[row]) for row in range(2)]
    for name in QUANTITIES:
        alone = [row[name] for row in rows]
        expected = sum(alone) if name.removeprefix("d") in PARAMETERS else np.concatenate(alone)
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12 * rms(expected), err_msg=name)
    forward = flattened(float64.forward(*inputs_of(x), segment_ids=DOCUMENTS))
    for name, output in zip(OUTPUTS, forward, strict=True):
        np.testing.assert_array_equal(output, found[name])
    assert not found["final_conv_state_v"][0, :2].any(), "the last document of row 0 has one token"
    assert found["final_conv_state_v"][:, 2].all()


def test_one_document_is_a_row_without_ids():
    x = drawn("one document", **PACKED)
    with_ids = in_float64(x, segment_ids=np.full((2, 7), -7))
    for name, value in in_float64(x).items():
        np.testing.assert_array_equal(with_ids[name], value)


# At the ends of the gates


@pytest.mark.parametrize("s", [-700.0, -40.0, -1.0, 0.0, 1.0, 40.0, 700.0])
def test_gates_and_their_slopes_are_as_exact_where_they_saturate(s):
    at, one = np.full((1, 1, 1), s), np.ones((1, 1, 1))
    g, back_g = parts.log_decay(at, np.zeros(1), np.zeros(1), parts.as_it_is)
    beta, back_beta = parts.write_strength(at, parts.as_it_is)
    y, back_silu = parts.silu("", at, parts.as_it_is)
    with mp.workdps(700):  # 1 + exp(-700) must not be 1
        e = mp.exp(-mp.mpf(s))
        wanted = {
            "g": -mp.log(1 + 1 / e),
            "dg": -1 / (1 + e),
            "beta": 1 / (1 + e),
            "dbeta": e / (1 + e) ** 2,
            "silu": s / (1 + e),
            "dsilu": 1 / (1 + e) + s * e / (1 + e) ** 2,
        }
    found = (g, back_g(one)[0], beta, back_beta(one), y, back_silu(one))
    for (name, want), got in zip(wanted.items(), found, strict=True):
        assert got.item() == pytest.approx(float(want), rel=8 * U, abs=0), name


@pytest.mark.parametrize("s", [-5.0, 0.0, 5.0, 40.0])
def test_slopes_move_with_what_they_are_taken_from(s):
    """Code that takes 1 - beta from a rounded beta, and exp(s - softplus(s)) from a rounded softplus, is right."""
    at, one = np.full((1, 1, 1), s), np.ones((1, 1, 1))

    def perturb(name, value):
        return value * (1 + 2.0**-20) if name in ("softplus", "beta") else value

    g, back_g = parts.log_decay(at, np.zeros(1), np.zeros(1), perturb)
    beta, back_beta = parts.write_strength(at, perturb)
    assert back_g(one)[0].item() == pytest.approx(-math.exp(s + g.item()), rel=1e-14, abs=0)
    assert back_beta(one).item() == pytest.approx(beta.item() * (1 - beta.item()), rel=1e-9, abs=0)


@pytest.mark.parametrize("s", [-800.0, -40.0, 40.0, 800.0])
def test_the_layer_at_extreme_gates(s):
    """All four gates: the decay, beta, and SiLU of the value and of z."""
    x = drawn("extreme", **SMALL)
    x |= {name: s * x[name] for name in ("a", "b", "z", "conv_v")} | {"dt_bias": np.full(3, s)}
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        values = in_float64(x)
        assert all(np.isfinite(value).all() for value in values.values())
    assert_outputs_agree(x)


def test_zeros_are_no_singularity():
    """No tokens that say anything, no state: every norm is that of EPSILON, and all but the gates' inputs is 0."""
    x = {name: np.zeros_like(value) for name, value in drawn("zeros", **SMALL).items()} | {"dy": np.ones((1, 6, 3))}
    assert all(np.array_equal(value, np.zeros_like(value)) for value in in_float64(x).values())


# kappa


PLACES = {
    "projected": ("q", "k", "v", "z", "a", "b"),
    "convolved": ("q", "k", "v"),
    "silu": ("q", "k", "v", "z"),
    "normalised": ("q", "k", "o"),
}


def test_every_place_moves_some_result_and_no_place_but_its_own_is_read():
    x, seen = drawn("places", **SIZES["grouped"]), []

    def moving(place):
        def perturb(name, value):
            seen.append(name)
            return value * (1 + 2.0**-20 * signs(name, value)) if name == place else value

        return perturb

    exact = in_float64(x, perturb=moving(None))
    places = [*seen]
    assert len(set(places)) == len(places)
    both_ways = {f"{name} {of}" for of, names in PLACES.items() for name in names} | {"g", "beta", "o", "gated"}
    assert both_ways | {f"d{place}" for place in both_ways} | {"decay", "terms of dg"} <= set(places)
    for place in places:
        seen.clear()
        moved = in_float64(x, perturb=moving(place))
        assert seen == places
        changed = {name for name in QUANTITIES if not np.array_equal(moved[name], exact[name])}
        assert changed, place
        if place.startswith(("d", "terms")) and place != "decay":
            assert changed <= set(GRADIENTS), place


@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_a_term_of_the_decay_gradient_moves_what_is_summed_over_it(chunk_size):
    """The terms of token 4 are in dg of the tokens of a window that ends there, with one sign, and so in dA_log."""
    x, plain, held = drawn("terms", **SMALL), {}, {}
    exact = in_float64(x, perturb=lambda name, value: plain.setdefault(name, value))

    def doubled(name, value):
        held[name] = value
        return value * np.where(np.arange(6) == 4, 2, 1)[:, None] if name == "terms of dg" else value

    moved = in_float64(x, perturb=doubled, chunk_size=chunk_size)
    values = {"v": plain["v silu"], "dv": plain["dv silu"], **{name: plain[name] for name in OF_THE_RULE}}
    terms = decay_gradient_terms(values, values, window=1)
    np.testing.assert_array_equal(plain["terms of dg"], terms)
    window = (np.arange(6) <= 4) & (np.arange(6) > 4 - chunk_size)
    more = window[:, None] * terms[:, 4]
    np.testing.assert_allclose(held["dg"] - plain["dg"], more[None], rtol=0, atol=1e-13)
    np.testing.assert_allclose(moved["dA_log"] - exact["dA_log"], np.sum(plain["g"] * more, axis=(0, 1)), rtol=1e-10)


def rounded_to_float32(name, value):
    return value.astype(np.float32).astype(np.float64)


def near_one(x):
    """beta within 2^-40 of 1, where 1 - beta has no correct digit in f32."""
    x["x"][..., 0], x["b"][0] = 1, 28


def wide_steps(x):
    """softplus of 40, beside which exp(s - softplus(s)) is rounded."""
    x["dt_bias"] += 40
    x["A_log"] -= 8


def strong_decay(x):
    """Decays of about e^-60 a token: what is left of the terms of dg is far smaller than they are."""
    x["dt_bias"] += 5
    x["A_log"] += 2.5


# With the quantity of which no perturbation of arguments shows what rounding does to it, where there is one.
REGIMES = {
    "typical": (lambda x: None, None),
    "near_one": (near_one, "db"),
    "wide_steps": (wide_steps, None),
    "strong_decay": (strong_decay, "dA_log"),
}


@pytest.mark.parametrize(("change", "unseen"), REGIMES.values(), ids=REGIMES.keys())
def test_rounding_every_place_is_some_tenths_of_a_unit(change, unseen):
    """kappa in a case where its claim is known: `perturb` rounds to f32, and nothing else is rounded."""
    x = drawn("rounded", **SMALL | {"B": 2, "T": 64, "D": 8, "Hk": 2, "Hv": 4, "K": 8})
    change(x)
    x = {name: rounded_to_float32(name, value) for name, value in x.items()}
    values, kappa = conditioned(x, name="rounded")
    rounded = in_float64(x, perturb=rounded_to_float32)
    error = {name: rms(rounded[name] - values[name]) for name in QUANTITIES}
    units = {name: error[name] / (2.0**-24 * rms(kappa[name])) for name in QUANTITIES}
    assert max(units.values()) < 1
    assert min(units[name] for name in QUANTITIES if name != unseen) > 0.05
    if unseen:
        of_arguments = rms_response(of_flat, tuple(x[name] for name in ARGUMENTS), name="arguments alone")
        assert error[unseen] > 100 * 2.0**-24 * rms(of_arguments[QUANTITIES.index(unseen)])


def of_flat(*arguments):
    return tuple(in_float64(dict(zip(ARGUMENTS, arguments, strict=True))).values())


def test_kappa_is_a_function_of_its_name():
    x = drawn("again", **SMALL)
    one, two, other = (conditioned(x, name=name)[1] for name in ("a", "a", "b"))
    assert all(np.array_equal(one[name], two[name]) for name in QUANTITIES)
    assert not np.array_equal(one["dx"], other["dx"])


# What is refused


@pytest.fixture
def unchecked(monkeypatch):
    """As users call it: without the shape checks of jaxtyping, which under pytest may come first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


WRONG = [
    ("x", (1, 6), r"x must be \[B, T, D\], q .* got x \(1, 6\)"),
    ("q", (3, 2), r"q \[D, Hk, K\].* got .*q \(3, 2\)"),
    ("v", (3, 3), r"v \[D, Hv, V\].* got .*v \(3, 3\)"),
    ("conv_v", (9, 4), r"conv_v \[Hv, V, W\].* got .*conv_v \(9, 4\)"),
    ("q", (3, 2, 2), "Hv must be a multiple of Hk; got Hv = 3 .* Hk = 2"),
    ("q", (3, 0, 2), "Hv must be a multiple of Hk; got Hv = 3 .* Hk = 0"),
    ("conv_v", (3, 3, 0), "must be positive; got 3, 2, 3 and 0"),
    ("q", (4, 1, 2), r"q must have shape \(3, 1, 2\); got \(4, 1, 2\)"),
    ("v", (1, 3, 3), r"v must have shape \(3, 3, 3\); got \(1, 3, 3\)"),
    ("k", (3, 1, 3), r"k must have shape \(3, 1, 2\)"),
    ("z", (3, 3, 2), r"z must have shape \(3, 3, 3\)"),
    ("a", (3, 1), r"a must have shape \(3, 3\)"),
    ("b", (3,), r"b must have shape \(3, 3\)"),
    ("conv_q", (1, 2, 3), r"conv_q must have shape \(1, 2, 4\)"),
    ("conv_k", (2, 4), r"conv_k must have shape \(1, 2, 4\)"),
    ("conv_v", (3, 2, 4), r"conv_v must have shape \(3, 3, 4\)"),
    ("A_log", (1,), r"A_log must have shape \(3,\)"),
    ("dt_bias", (3, 1), r"dt_bias must have shape \(3,\)"),
    ("norm", (3, 3), r"norm must have shape \(3,\)"),
    ("out", (9, 3), r"out must have shape \(3, 3, 3\)"),
    ("conv_state_q", (1, 4, 1, 2), r"conv_state_q must have shape \(1, 3, 1, 2\)"),
    ("conv_state_k", (2, 3, 1, 2), r"conv_state_k must have shape \(1, 3, 1, 2\)"),
    ("conv_state_v", (1, 3, 9), r"conv_state_v must have shape \(1, 3, 3, 3\)"),
    ("recurrent_state", (1, 3, 3, 2), r"recurrent_state must have shape \(1, 3, 2, 3\)"),
    ("dy", (1, 5, 3), r"dy must have the shape of y, \(1, 6, 3\); got \(1, 5, 3\)"),
    (
        "dfinal_conv_state_k",
        (3, 1, 2),
        r"dfinal_conv_state_k must have the shape of final_conv_state_k, \(1, 3, 1, 2\)",
    ),
    ("dfinal_recurrent_state", (1, 1, 2, 3), r"dfinal_recurrent_state must have the shape of .*\(1, 3, 2, 3\)"),
]


@pytest.mark.parametrize(("name", "shape", "message"), WRONG)
@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_fit_are_refused(name, shape, message):
    x = drawn("refused", **SMALL) | {name: np.zeros(shape)}
    with pytest.raises(ValueError, match=message):
        in_float64(x)
    if name in INPUTS:
        with pytest.raises(ValueError, match=message):
            float64.forward(*inputs_of(x))
        one_row = {key: value[0] if key in PER_ROW else value for key, value in x.items()}
        if name not in PER_ROW or shape[0] == 1:
            with pytest.raises(ValueError, match=message):
                mpmath_layer.forward(*inputs_of(one_row), digits=20)


@pytest.mark.parametrize("ids", [np.zeros((1, 5), int), np.zeros((6,), int), np.zeros((1, 6)), np.zeros((1, 6), bool)])
@pytest.mark.usefixtures("unchecked")
def test_segment_ids_that_are_not_one_integer_a_token_are_refused(ids):
    x = drawn("refused", **SMALL)
    got = rf"segment_ids must be integers of shape \(1, 6\), one id a token; got {ids.dtype}"
    with pytest.raises(ValueError, match=got):
        float64.forward(*inputs_of(x), segment_ids=ids)
    with pytest.raises(ValueError, match=got):
        in_float64(x, segment_ids=ids)
    one_row = {key: value[0] if key in PER_ROW else value for key, value in x.items()}
    with pytest.raises(ValueError, match="segment_ids must be integers"):
        mpmath_layer.forward(*inputs_of(one_row), segment_ids=ids[0], digits=20)


@pytest.mark.parametrize("which", ["parameters", "conv_state", "dfinal_conv_state"])
@pytest.mark.parametrize("change", ["missing", "unknown"])
@pytest.mark.usefixtures("unchecked")
def test_keys_that_are_missing_or_unknown_are_refused(which, change):
    x = drawn("refused", **SMALL)
    given = [*inputs_of(x), *cotangents_of(x)]
    arrays = given[{"parameters": 1, "conv_state": 2, "dfinal_conv_state": 5}[which]]
    if change == "missing":
        del arrays["q"]
    else:
        arrays["w"] = np.zeros(3)
    missing, unknown = (["q"], []) if change == "missing" else ([], ["w"])
    message = rf"{which} must have the keys q, .*; missing: \{missing}, unknown: \{unknown}"
    with pytest.raises(ValueError, match=message):
        float64.forward_and_adjoint(*given)
    if which != "dfinal_conv_state":
        with pytest.raises(ValueError, match=message):
            float64.forward(*given[:4])


def test_a_place_that_is_met_twice_is_refused(monkeypatch):
    silu = parts.silu
    monkeypatch.setattr(float64, "silu", lambda name, x, perturb: silu("z", x, perturb))
    with pytest.raises(RuntimeError, match="'z sigmoid' twice"):
        conditioned(drawn("twice", **SMALL), name="twice")
