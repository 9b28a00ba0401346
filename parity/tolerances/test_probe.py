"""A measure that was made looser, whichever part of it, lets a known error take up less of its limit."""

from dataclasses import replace
from functools import partial

import pytest

import parity.truth
import parity.verdict
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.tolerances import limits, probe
from parity.tolerances.loosening import NOISE


@pytest.fixture(autouse=True)
def one_regime(monkeypatch):
    monkeypatch.setattr(probe, "REGIMES", ("typical",))


@pytest.fixture(scope="module")
def before():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "REGIMES", ("typical",))
        return probe.probes()


def less(before):
    """The probes that take up less of their limit than before, or whose blocks are fewer."""
    found = {x.name: x for x in probe.probes()}
    assert found.keys() == {x.name for x in before}
    return {
        x.name
        for x in before
        if len(found[x.name].shares) < len(x.shares)
        or any(b < a * (1 - NOISE) for a, b in zip(x.shares, found[x.name].shares, strict=False))
    }


def test_the_same_measure_gives_the_same_probes(before):
    assert probe.probes() == before


def test_every_probe_is_an_error_that_fails(before):
    assert not any(x.passes for x in before)
    assert len({x.name for x in before}) == len(before) == 8 * (len(probe.CLAIMS) + 2 + 4)


def test_a_larger_kappa_shows(before, monkeypatch):
    def doubled(problem):
        found = parity.truth.truth(problem)
        return parity.truth.Truth(found.values, {q: 2 * x for q, x in found.kappa.items()}, found.certificate)

    monkeypatch.setattr(parity.verdict, "truth", doubled)
    assert {f"scaled typical-short f32 in f32 {quantity}" for quantity in ("o", "dk", "dh0")} <= less(before)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_a_larger_roundoff_shows(before, monkeypatch, dtype):
    monkeypatch.setitem(UNIT_ROUNDOFF, dtype, UNIT_ROUNDOFF[dtype] * 1.01)
    found = less(before)
    assert f"scaled typical-short {dtype} in {dtype} dk" in found
    assert ("scaled typical-short f64 in f64 dk" in found) == (dtype == "f64")


def test_a_higher_floor_shows(before, monkeypatch):
    monkeypatch.setitem(SMALLEST_NORMAL, "f32", 1e-9)
    assert "scaled typical-short f32 in f32 dk" in less(before)


def test_a_longer_block_shows(before, monkeypatch):
    monkeypatch.setattr(parity.verdict, "units", partial(parity.verdict.units, block=128))
    monkeypatch.setattr(parity.verdict, "BLOCK", 128)
    assert {"one token typical-ragged f64 in f64 o", "one token typical-ragged f64 in f64 dg"} <= less(before)


def test_a_higher_limit_shows(before, monkeypatch):
    table = limits.limits()
    higher = limits.Table({x: _times(row, 1.5) for x, row in table.base.items()}, table.overrides)
    monkeypatch.setattr(limits, "limits", lambda: higher)
    found = less(before)
    assert {x.name for x in before if x.name.startswith("scaled")} == {x for x in found if x.startswith("scaled")}


def test_a_judge_that_looks_away_shows(before, monkeypatch):
    real = parity.verdict.units

    def forgiving(*arguments, **keywords):
        return real(*arguments, **keywords) ** 0.5

    monkeypatch.setattr(parity.verdict, "units", forgiving)
    assert len(less(before)) >= 8 * len(probe.CLAIMS)


def _times(row, factor):
    return limits.Row(row.name, row.units * factor, row.selector, row.reason, row.evidence, row.date)


def test_a_judge_that_looks_at_the_first_rank_alone_shows(before, monkeypatch):
    find = parity.verdict._find

    def only_the_first(case, wanted, answer, quantity):
        return [replace(found, units=found.units * (found.rank == 0)) for found in find(case, wanted, answer, quantity)]

    monkeypatch.setattr(parity.verdict, "_find", only_the_first)
    assert less(before) == {x.name for x in before if x.name.endswith("on rank 1 of 2")} != set()
