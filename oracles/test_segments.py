"""A packed row is its documents run one by one, in every oracle; and the first tokens of documents are found."""

from itertools import pairwise

import numpy as np
import pytest
from flint import arb

from oracles.causal_conv import ball as conv_ball
from oracles.causal_conv import float64 as conv_float64
from oracles.causal_conv import mp as conv_mp
from oracles.conditioning import decay_gradient_terms
from oracles.gated_delta_rule import QUANTITIES, ball, float64, mp
from oracles.reference import ARGUMENTS, conditioned
from oracles.segments import numbered, starts
from oracles.stream import Stream

# Ids that come again, one token long, at the first and the last token, and none that change.
IDS = np.array([[4, 4, 4, 0, 4, 4, 7, 7, 7, 7, 7], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, -3], [5] * 11])
B, T, HK, HV, K, V, W, D = 3, 11, 1, 2, 3, 2, 4, 2
OF_TOKENS = ("q", "k", "v", "g", "beta", "do")
TOKENS_OF_CONV, NAMES_OF_CONV = ("x", "dy"), ("x", "weight", "initial_state", "dy", "dfinal_state")


def test_the_first_token_of_a_document_is_where_the_id_changes():
    assert np.argwhere(starts(IDS, IDS.shape)).tolist() == [[0, 3], [0, 4], [0, 6], [1, 1], [1, 10]]
    assert numbered(IDS, IDS.shape)[:2].tolist() == [[0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 3], [0] + [1] * 9 + [2]]
    assert not starts(None, (2, 3)).any()
    assert starts(np.array([[1], [2]]), (2, 1)).tolist() == [[False], [False]]


@pytest.mark.parametrize("ids", [np.zeros((2, 11), int), np.zeros((3, 10), int)])
def test_ids_that_are_not_one_integer_a_token_are_refused(ids):
    with pytest.raises(ValueError, match=r"an integer for each token, \(3, 11\)"):
        starts(ids, (3, 11))


def documents(row):
    """`(slice, is the first, is the last)` of each document of a row of `IDS`."""
    edges = [0, *(np.flatnonzero(np.diff(IDS[row])) + 1), T]
    return [(slice(a, b), a == 0, b == T) for a, b in pairwise(edges)]


def of_rule():
    stream = Stream("packed rule")
    sizes = {
        "q": (B, T, HK, K),
        "k": (B, T, HK, K),
        "v": (B, T, HV, V),
        "g": (B, T, HV),
        "beta": (B, T, HV),
        "initial_state": (B, HV, K, V),
        "do": (B, T, HV, V),
        "dfinal_state": (B, HV, K, V),
    }
    x = {name: stream.normal(name, *size) for name, size in sizes.items()}
    return x | {"g": -np.abs(x["g"]), "beta": stream.uniform("beta", *sizes["beta"])}


def one_by_one(x, run, names, of_tokens, states):
    """Each document on its own: `run(arguments of one row) -> results`, as (row, slice, is first, is last, results)."""
    initial, cotangent = states
    for row in range(B):
        for tokens, first, last in documents(row):
            one = {n: y[row : row + 1, tokens] if n in of_tokens else y[row : row + 1] for n, y in x.items()}
            one[initial] = one[initial] * first
            one[cotangent] = one[cotangent] * last
            yield row, tokens, first, last, run(*(one[name] if name in one else x[name] for name in names))


def test_the_rule_in_float64_is_that_of_documents_one_by_one():
    x = of_rule()
    packed = dict(zip(QUANTITIES, float64.forward_and_adjoint(*x.values(), segment_ids=IDS), strict=True))
    alone = one_by_one(x, float64.forward_and_adjoint, ARGUMENTS, OF_TOKENS, ("initial_state", "dfinal_state"))
    for row, tokens, first, last, results in alone:
        for name, y in zip(QUANTITIES, results, strict=True):
            if name == "final_state":
                assert not last or np.array_equal(y[0], packed[name][row])
            elif name == "dh0":
                assert not first or np.array_equal(y[0], packed[name][row])
            elif name == "dg":  # the decay before a document's first token is of no consequence
                assert np.array_equal(y[0][not first :], packed[name][row, tokens][not first :])
                assert first or not packed[name][row, tokens.start].any()
            else:
                assert np.array_equal(y[0], packed[name][row, tokens]), name


def head(x, row):
    return [y[row, 0] if name.endswith("state") else y[row, :, 0] for name, y in x.items()]


@pytest.mark.parametrize("row", range(B))
def test_the_rule_in_mpmath_and_in_balls_is_that_in_float64(row):
    x = of_rule() | {"q": of_rule()["q"].repeat(HV, 2), "k": of_rule()["k"].repeat(HV, 2)}
    wanted = float64.forward_and_adjoint(*x.values(), segment_ids=IDS)
    one = head(x, row)
    in_mp = (
        *mp.forward(*one[:6], scale=None, digits=80, segment_ids=IDS[row]),
        *mp.adjoint(*one, scale=None, digits=80, segment_ids=IDS[row]),
    )
    in_balls = (
        *ball.forward(*one[:6], scale=None, bits=200, segment_ids=IDS[row]),
        *ball.adjoint(*one, scale=None, bits=200, segment_ids=IDS[row]),
    )
    for name, y, m, b in zip(QUANTITIES, wanted, in_mp, in_balls, strict=True):
        y = y[row, 0] if name in ("final_state", "dh0") else y[row, :, 0]
        assert np.abs(y.ravel() - np.array([float(entry) for entry in m])).max() < 1e-13, name
        assert all(enclosure.contains(arb(entry)) for entry, enclosure in zip(m, b.entries(), strict=True)), name


def of_conv():
    stream = Stream("packed conv")
    sizes = ((B, T, D), (D, W), (B, W - 1, D), (B, T, D), (B, W - 1, D))
    return {name: stream.normal(name, *size) for name, size in zip(NAMES_OF_CONV, sizes, strict=True)}


def conv_and_adjoint(*arguments, segment_ids=None):
    return (
        *conv_float64.forward(*arguments[:3], segment_ids=segment_ids),
        *conv_float64.adjoint(*arguments, segment_ids=segment_ids),
    )


def test_the_convolution_in_float64_is_that_of_documents_one_by_one():
    x = of_conv()
    y, final_state, dx, dweight, dstate = conv_and_adjoint(*x.values(), segment_ids=IDS)
    total = np.zeros_like(dweight)
    per_row = {name: value for name, value in x.items() if name != "weight"}
    run = one_by_one(
        per_row,
        lambda *a: conv_and_adjoint(a[0], x["weight"], *a[2:]),
        ("x", "initial_state", "initial_state", "dy", "dfinal_state"),
        TOKENS_OF_CONV,
        ("initial_state", "dfinal_state"),
    )
    for row, tokens, first, last, (one_y, one_state, one_dx, one_dweight, one_dstate) in run:
        assert np.array_equal(one_y[0], y[row, tokens])
        assert np.array_equal(one_dx[0], dx[row, tokens])
        assert not last or np.array_equal(one_state[0], final_state[row])
        assert not first or np.array_equal(one_dstate[0], dstate[row])
        total += one_dweight
    assert np.abs(total - dweight).max() < 1e-13


def test_the_convolution_in_mpmath_and_in_balls_is_that_in_float64():
    x = of_conv()
    wanted = conv_and_adjoint(*x.values(), segment_ids=IDS)
    for channel in range(D):
        one = [y[channel] if name == "weight" else y[..., channel] for name, y in x.items()]
        in_mp, in_balls = (
            (
                *oracle.forward(*one[:3], **precision, segment_ids=IDS),
                *oracle.adjoint(*one, **precision, segment_ids=IDS),
            )
            for oracle, precision in ((conv_mp, {"digits": 80}), (conv_ball, {"bits": 200}))
        )
        for name, y, m, b in zip(("y", "final_state", "dx", "dweight", "dstate"), wanted, in_mp, in_balls, strict=True):
            y = y[channel] if name == "dweight" else y[..., channel]
            assert np.abs(y.ravel() - np.array([float(entry) for entry in m])).max() < 1e-13, name
            assert all(enclosure.contains(arb(entry)) for entry, enclosure in zip(m, b.entries(), strict=True)), name


def test_what_a_document_knows_nothing_of_does_not_move_it():
    """kappa is exactly 0 where a result does not depend on anything."""
    x = of_rule()
    _, kappa = conditioned(x, scale=None, chunk_size=4, name="packed", segment_ids=IDS)
    first = starts(IDS, IDS.shape)
    assert not kappa["dg"][first].any()
    assert kappa["dg"][:, 1:][~first[:, 1:]].all()
    values = dict(zip(QUANTITIES, float64.forward_and_adjoint(*x.values(), segment_ids=IDS), strict=True))
    terms = decay_gradient_terms(x, values, window=4, segment_ids=IDS)
    one = {name: y[:1, 6:] if name in OF_TOKENS else y[:1] for name, y in x.items()}
    one["initial_state"] = np.zeros_like(one["initial_state"])
    of_one = dict(zip(QUANTITIES, float64.forward_and_adjoint(*one.values()), strict=True))
    assert np.allclose(terms[0, 7:], decay_gradient_terms(one, of_one, window=4)[0, 1:], rtol=1e-12)
