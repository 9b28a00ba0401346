"""The truth of a problem: certified, representable where it is exact, and with the kappa that it claims."""

from functools import lru_cache

import numpy as np
import pytest
from mpmath import mp

import parity.truth
from oracles.cache import Cache
from oracles.gated_delta_rule import INPUTS, QUANTITIES, float64
from oracles.gated_delta_rule import mp as mpmath_rule
from parity.precision import DTYPES
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.shapes import ALIGNED, SHORT, SINGLE
from parity.tolerances.limits import limits
from parity.truth import CERTIFIED_SHARE, STATES, UncertifiedOracle, per_token, truth
from parity.unit import block_rms

TYPICAL = Problem("typical", SHORT, "f64")


@pytest.fixture
def afresh(monkeypatch, tmp_path):
    """Nothing is read from a cache, and nothing is left in one."""
    monkeypatch.setattr(parity.truth, "CACHE", Cache(tmp_path))
    monkeypatch.setattr(parity.truth, "truth", lru_cache(parity.truth.truth.__wrapped__))
    return parity.truth.truth


# The certificate


def planted(function, position, row, head, *, token=4):
    """`function` with result `position` off by 1e-4 in one token of one head (in one head, where it is a state)."""

    def wrong(*arguments, **keywords):
        results = [x.copy() for x in function(*arguments, **keywords)]
        x = results[position]
        is_state = x.shape == arguments[5].shape
        x[(row, head) if is_state else (row, token, head)] *= 1 + 1e-4
        return tuple(results)

    return wrong


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_an_oracle_that_is_wrong_in_one_token_judges_nobody(afresh, monkeypatch, quantity, dtype):
    problem = Problem("typical", SHORT, dtype)
    sample = afresh(problem).certificate
    head = sample.key_head if quantity in ("dq", "dk") else sample.key_head * 3 + 1
    wrong = planted(float64.forward_and_adjoint, QUANTITIES.index(quantity), sample.row, head)
    monkeypatch.setattr(float64, "forward_and_adjoint", wrong)
    monkeypatch.setattr(parity.truth, "CACHE", Cache(parity.truth.CACHE.directory / "wrong"))
    afresh.cache_clear()
    with pytest.raises(
        UncertifiedOracle, match=f"typical-short in {dtype}: the float64 oracle's {quantity} may be off by"
    ):
        afresh(problem)


def test_it_stays_refused_when_it_is_read_from_the_cache(afresh, monkeypatch):
    sample = afresh(TYPICAL).certificate
    monkeypatch.setattr(parity.truth, "CACHE", Cache(parity.truth.CACHE.directory / "wrong"))
    afresh.cache_clear()
    with monkeypatch.context() as patch:
        wrong = planted(float64.forward_and_adjoint, 0, sample.row, sample.key_head * 3)
        patch.setattr(float64, "forward_and_adjoint", wrong)
        with pytest.raises(UncertifiedOracle):
            afresh(TYPICAL)
    with pytest.raises(UncertifiedOracle):
        afresh(TYPICAL)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_the_right_oracle_is_certified_with_room(afresh, regime, dtype):
    certificate = afresh(Problem(regime, SHORT, dtype)).certificate
    assert certificate.units.keys() == set(QUANTITIES)
    for quantity, found in certificate.units.items():
        strictest = limits().strictest(dtype, dtype=dtype, quantity=quantity, regime=regime)
        assert found <= CERTIFIED_SHARE[dtype] * strictest
    assert certificate.bits >= 64


def test_one_read_from_the_cache_is_the_one_that_was_computed(afresh):
    computed = afresh(TYPICAL)
    assert len(list(parity.truth.CACHE.directory.glob("*.entry"))) == 1
    afresh.cache_clear()
    read = afresh(TYPICAL)
    assert len(list(parity.truth.CACHE.directory.glob("*.entry"))) == 1
    assert read.certificate == computed.certificate
    for quantity in QUANTITIES:
        assert np.array_equal(read.values[quantity], computed.values[quantity])
        assert np.array_equal(read.kappa[quantity], computed.kappa[quantity])


# Values


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_the_oracle_sees_the_inputs_rounded_to_the_dtype(dtype):
    problem = Problem("typical", SHORT, dtype)
    x = {name: array.astype(np.float64) for name, array in problem.arguments.items()}
    o, final_state = float64.forward(*(x[name] for name in INPUTS))
    assert np.array_equal(truth(problem).values["o"], o)
    assert np.array_equal(truth(problem).values["final_state"], final_state.reshape(2, 1, 6, -1))


def test_the_scale_of_the_shape_is_used():
    problem = Problem("typical", ALIGNED, "f64")
    found, x = truth(problem), problem.arguments
    o, _ = float64.forward(*(x[name] for name in INPUTS), scale=0.5)
    assert np.array_equal(found.values["o"], o)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_an_exact_truth_is_made_of_integers_that_f32_holds(dtype):
    found = truth(Problem("orthogonal_write", SHORT, dtype))
    for quantity in QUANTITIES:
        x = 4 * found.values[quantity]  # the scale is 1/4
        assert np.array_equal(x, np.rint(x)), quantity
        assert 0 < np.abs(x).max() < 2**24, quantity


def test_what_is_not_exact_has_a_kappa():
    found = truth(TYPICAL)
    assert all(block_rms(found.kappa[quantity]).min() > 0 for quantity in QUANTITIES)


def test_per_token_gives_four_axes():
    v, g, h = (
        np.arange(2 * 5 * 3 * 4).reshape(2, 5, 3, 4),
        np.arange(30).reshape(2, 5, 3),
        np.arange(72).reshape(2, 3, 4, 3),
    )
    assert np.array_equal(per_token("dv", v), v)
    assert np.array_equal(per_token("dg", g), g[..., None])
    assert per_token("dh0", h).shape == (2, 1, 3, 12)
    assert np.array_equal(per_token("final_state", h)[1, 0, 2], h[1, 2].ravel())
    assert set(STATES) == {"final_state", "dh0"}


# kappa


COLUMNS = 6


@pytest.fixture(scope="module")
def sensitivities():
    """For the one token of `single`: how a column moves with each element, and with each decay, alone.

    By central differences in 50 digits. Columns are independent of each other, so that each is a problem with V = 1.
    """
    x = Problem("typical", SINGLE, "f64").arguments
    row, head, step = 1, 4, mp.mpf(10) ** -20
    one = {name: x[name][row, :, head // 3] for name in ("q", "k")} | {
        name: x[name][row, :, head] for name in ("g", "beta")
    }
    squares = {quantity: [] for quantity in ("o", "final_state", "dv", "dh0")}
    for column in range(COLUMNS):
        own = {name: x[name][row, :, head, column : column + 1] for name in ("v", "do")}
        own |= {name: x[name][row, head, :, column : column + 1] for name in ("initial_state", "dfinal_state")}
        exact = {name: np.vectorize(mp.mpf, otypes=[object])(array) for name, array in (one | own).items()}
        total = dict.fromkeys(squares, 0.0)
        for name, array in (*exact.items(), ("decay", exact["g"])):
            for index in np.ndindex(array.shape):
                above, below = (quantities_in_mp(exact, name, index, change) for change in (step, -step))
                for quantity in squares:
                    with mp.workdps(50):
                        response = [float(d) for d in (above[quantity] - below[quantity]) / (2 * step)]
                    total[quantity] = total[quantity] + np.square(response)
        for quantity in squares:
            squares[quantity].append(total[quantity])
    return row, head, {quantity: np.sqrt(np.stack(columns, axis=-1)) for quantity, columns in squares.items()}


def quantities_in_mp(arguments, name, index, change):
    """All quantities where one element, or the decay `exp(g)` of one token, is multiplied by `1 + change`."""
    moved = {key: array.copy() for key, array in arguments.items()}
    with mp.workdps(50):
        if name == "decay":
            moved["g"][index] += mp.log(1 + change)
        else:
            moved[name][index] *= 1 + change
    ordered = [moved[name] for name in (*INPUTS, "do", "dfinal_state")]
    outputs = mpmath_rule.forward(*ordered[:6], scale=None, digits=50)
    gradients = mpmath_rule.adjoint(*ordered, scale=None, digits=50)
    return dict(zip(QUANTITIES, (*outputs, *gradients), strict=True))


@pytest.mark.parametrize("quantity", ["o", "final_state", "dv", "dh0"])
def test_kappa_is_the_root_of_the_summed_squared_sensitivities(sensitivities, quantity):
    """Eight probes estimate it, in the rms of one head to about a third of its size."""
    row, head, wanted = sensitivities
    found = truth(Problem("typical", SINGLE, "f64")).kappa[quantity][row, 0, head].reshape(-1, SINGLE.V)[:, :COLUMNS]
    assert found.shape == wanted[quantity].shape
    assert 2 / 3 < np.sqrt(np.mean(found**2) / np.mean(wanted[quantity] ** 2)) < 3 / 2


def test_the_oracle_decides_no_verdict():
    """Its certified error may take half of the limit in f64, whose arithmetic it shares, and elsewhere a thousandth."""
    assert CERTIFIED_SHARE.keys() == set(DTYPES)
    assert CERTIFIED_SHARE["f64"] <= 0.5
    assert max(CERTIFIED_SHARE["f32"], CERTIFIED_SHARE["bf16"]) <= 1e-3
