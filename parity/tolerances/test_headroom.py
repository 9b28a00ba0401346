"""The table against what was seen: every row is needed, and none is nearer or farther than it should be."""

from datetime import date

import pytest

import implementations
from parity.matrix import cases, items
from parity.tolerances.headroom import LEAST, MOST, least_headroom
from parity.tolerances.ledger import Ledger, Observation, ledgers
from parity.tolerances.limits import Row, Table, limits
from parity.tolerances.platforms import PLATFORMS
from parity.tolerances.selector import Selector

ROWS = [pytest.param(row, id=row.name) for row in limits().rows]


def platforms_of(row):
    return row.selector.axes.get("platform", PLATFORMS)


@pytest.fixture(scope="module")
def deciding():
    """By platform the rows that decide some item of the gate."""
    found = {}
    for item in items(cases(implementations.ALL + implementations.VARIANTS)):
        if item.not_applicable():
            continue
        implementation, problem = item.case.implementation, item.case.problem
        found[implementation, problem.dtype, item.quantity, problem.regime] = implementation.arithmetic[problem.dtype]
    return {
        platform: {
            limits()
            .resolve(
                claimed, implementation=mine.name, dtype=dtype, quantity=quantity, regime=regime, platform=platform
            )
            .name
            for (mine, dtype, quantity, regime), claimed in found.items()
        }
        for platform in PLATFORMS
    }


@pytest.mark.parametrize("row", ROWS)
def test_no_row_is_unused(row, deciding):
    unused = [platform for platform in platforms_of(row) if row.name not in deciding[platform]]
    assert unused == [], f"{row.name} decides no item of the gate there"


@pytest.mark.parametrize("row", ROWS)
def test_a_limit_is_two_to_eight_times_what_was_seen(row):
    seen_on = {platform: ledger for platform, ledger in ledgers().items() if platform in platforms_of(row)}
    if not seen_on:
        assert "platform" in row.selector.axes, "without any ledger no row is known to be right"
        return
    nearest = least_headroom(limits(), seen_on).get(row.name)
    assert nearest is not None, f"no ledger has seen what {row.name} decides: python -m parity observe"
    where = f"{'-'.join(nearest.key)} in {nearest.regime} came to {nearest.units:g} of {row.units:g}"
    assert LEAST <= nearest.headroom <= MOST, where


def test_the_bounds_are_those_that_were_agreed():
    assert (LEAST, MOST) == (2.0, 8.0)


# The measure itself


def row(name, units, **axes):
    return Row(name, units, Selector({axis: frozenset({x}) for axis, x in axes.items()}), "", "", date.today())


TABLE = Table(
    {x: row(x, 32.0, arithmetic=x) for x in ("f64", "f32", "bf16")},
    (row("easy", 8.0, arithmetic="f64", regime="typical"), row("there", 4.0, arithmetic="f64", platform="gpu")),
)


def seen(**by_regime):
    return Ledger({}, {("mine", "f64", "o"): Observation("f64", max(by_regime.values()), 1.0, "", 1, by_regime)})


def test_each_regime_counts_for_the_row_that_decides_it():
    found = least_headroom(TABLE, {"cpu": seen(typical=2.0, tiny_keys=16.0, zero_keys=1.0)})
    assert {name: (x.regime, x.headroom) for name, x in found.items()} == {
        "easy": ("typical", 4.0),
        "f64": ("tiny_keys", 2.0),
    }


def test_the_nearest_of_all_platforms_counts():
    found = least_headroom(TABLE, {"cpu": seen(zero_keys=2.0), "tpu7x": seen(zero_keys=4.0)})
    assert found["f64"].headroom == 8.0


def test_nothing_is_nearest_to_a_limit_at_zero():
    assert least_headroom(TABLE, {"cpu": seen(orthogonal_write=0.0)})["f64"].headroom == float("inf")
