"""The table of limits: which row decides, and what a table may not say."""

import re
from datetime import date, timedelta

import pytest

from parity.precision import DTYPES, UNIT_ROUNDOFF
from parity.tolerances.entries import BadTable
from parity.tolerances.limits import CAP, LIMITS, limits, load, resolve

GROUNDS = 'reason = "because"\nevidence = "measured"\ndate = 2026-01-31\n'
BASE = "".join(f"[base.{x}]\nunits = {units}\n{GROUNDS}" for x, units in (("f64", 30), ("f32", 20), ("bf16", 2)))
POINT = {"implementation": "mine", "dtype": "f64", "quantity": "dk", "regime": "typical", "platform": "cpu"}


def override(name="tight", *, units="8", arithmetic='"f64"', grounds=GROUNDS, **axes):
    lines = "".join(f"{axis} = {value}\n" for axis, value in axes.items())
    return f'[[override]]\nname = "{name}"\nunits = {units}\narithmetic = {arithmetic}\n{lines}{grounds}'


@pytest.fixture
def table(tmp_path):
    def read(text):
        path = tmp_path / "limits.toml"
        path.write_text(text)
        return load(path)

    return read


# Which row decides


@pytest.mark.parametrize(
    ("claimed", "dtype", "quantity", "coarser"),
    [
        ("f64", "f64", "o", "f64"),
        ("f32", "f32", "dk", "f32"),
        ("bf16", "bf16", "o", "bf16"),
        ("f32", "bf16", "dq", "bf16"),  # a bf16 run that accumulates in f32: o, dq, dk, dv
        ("f32", "bf16", "final_state", "f32"),
        ("bf16", "bf16", "dg", "bf16"),  # one that does not: its states and gates
        ("f64", "f32", "o", "f32"),
        ("f64", "bf16", "o", "bf16"),
        ("bf16", "f64", "o", "bf16"),
    ],
)
def test_the_base_row_is_that_of_the_coarser_of_arithmetic_and_output(table, claimed, dtype, quantity, coarser):
    found = table(BASE).resolve(claimed, **POINT | {"dtype": dtype, "quantity": quantity})
    assert found.name == coarser
    assert found.units == {"f64": 30, "f32": 20, "bf16": 2}[coarser]


@pytest.mark.parametrize(
    ("axis", "chosen", "other"),
    [
        ("implementation", "mine", "yours"),
        ("dtype", "f64", "f32"),
        ("quantity", "dk", "dv"),
        ("regime", "typical", "tiny_keys"),
        ("platform", "tpu7x", "cpu"),
        ("platform", "tpu7x", None),
    ],
)
def test_an_override_decides_where_its_axes_match_and_nowhere_else(table, axis, chosen, other):
    read = table(BASE + override(**{axis: f'["{chosen}"]'}))
    assert read.resolve("f64", **POINT | {axis: chosen}).name == "tight"
    assert read.resolve("f64", **POINT | {axis: other}).name != "tight"


def test_an_override_speaks_of_its_arithmetic_alone(table):
    read = table(BASE + override(quantity='"o"'))
    assert read.resolve("f64", **POINT | {"quantity": "o"}).units == 8
    assert read.resolve("f32", **POINT | {"quantity": "o"}).units == 20


def test_of_two_overrides_each_decides_its_own_points(table):
    both = override("a", units="7", quantity='["dk", "dv"]') + override("b", units="9", quantity='"dq"')
    read = table(BASE + both)
    found = {q: read.resolve("f64", **POINT | {"quantity": q}).name for q in ("dq", "dk", "dv", "dg")}
    assert found == {"dq": "b", "dk": "a", "dv": "a", "dg": "f64"}
    assert [row.name for row in read.rows] == ["f64", "f32", "bf16", "a", "b"]


def test_the_strictest_is_the_least_that_anybody_meets(table):
    read = table(
        BASE
        + override("a", units="7", implementation='"mine"', quantity='"dk"')
        + override("b", units="40", regime='"typical"', quantity='"dv"')
    )
    there = {"dtype": "f64", "regime": "typical"}
    assert read.strictest("f64", quantity="dk", **there) == 7
    assert read.strictest("f64", quantity="dv", **there) == 30
    assert read.strictest("f32", quantity="dk", **there) == 20


@pytest.mark.parametrize("elsewhere", [{"dtype": '"f32"'}, {"regime": '"tiny_keys"'}, {"quantity": '"dv"'}])
def test_the_strictest_does_not_ask_what_is_met_elsewhere(table, elsewhere):
    read = table(BASE + override("elsewhere", units="7", **elsewhere))
    assert read.strictest("f64", dtype="f64", quantity="dk", regime="typical") == 30


def test_the_table_of_this_checkout_is_the_one_that_is_asked():
    assert resolve("f32", **POINT | {"dtype": "f32", "implementation": "nobody"}) == limits().base["f32"]
    assert load(LIMITS) == limits()


# What a table may not say


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("units = = 3", "it is not TOML"),
        ("", "the file: base must be given"),
        (BASE + "[overide]\n", "the file: overide: no such key; known are base, override"),
        (BASE.replace("[base.f32]", "[base.f16]"), "base: f32 must be given"),
        ("base = 3\n", "base must be tables"),
        ("base = {f64 = 3, f32 = {units = 3}}\n", "base must be tables"),
        ("override = 3\n" + BASE, "override must be rows"),
        (BASE.replace("units = 30", "unit = 30"), "base.f64: units must be given"),
        (BASE.replace("units = 30", "units = 30\nplatform = 'cpu'"), "base.f64: platform: no such key"),
        (BASE + override(quantity='"dx"'), "override 1 (tight): quantity 'dx' is not known; known are o, final_state"),
        (BASE + override(regime='"easy"'), "regime 'easy' is not known; known are typical"),
        (BASE + override(dtype='"f16"'), "dtype 'f16' is not known; known are f64, f32, bf16"),
        (BASE + override(arithmetic='"f16"', quantity='"o"'), "arithmetic 'f16' is not known"),
        (BASE + override(platform='"tpu"'), "platform 'tpu' is not known; known are cpu, tpu-v5e"),
        (BASE + override(quantity="[]"), "quantity must be a value or a list of different values"),
        (BASE + override(quantity='["o", "o"]'), "quantity must be a value or a list of different values"),
        (BASE + override(quantity="3"), "quantity 3 is not known"),
        (BASE + override(implementation='"Mine"'), "implementation must match [a-z][a-z0-9_]*"),
        (BASE + override(implementation='["mine", 3]'), "implementation must match [a-z][a-z0-9_]*"),
        (
            BASE + override(shape='"short"'),
            "shape: no such key; known are name, arithmetic, units, reason, evidence, date, "
            "implementation, dtype, quantity, regime, platform",
        ),
        (BASE + override(), "it overrides all of a base row"),
        (BASE + override(quantity='"o"').replace("arithmetic = ", "dtype = "), "arithmetic must be given"),
        (BASE + override("Tight", quantity='"o"'), "name must match"),
        (BASE + override("f64", quantity='"o"'), "f64: every row needs a name of its own"),
        (BASE + 2 * override(quantity='"o"'), "tight: every row needs a name of its own"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(table, tmp_path, text, says):
    with pytest.raises(BadTable, match=re.escape(says)) as refused:
        table(text)
    assert str(refused.value).startswith(str(tmp_path / "limits.toml"))


@pytest.mark.parametrize("key", ["reason", "evidence", "date"])
def test_a_row_without_grounds_is_refused(table, key):
    without = "".join(line for line in GROUNDS.splitlines(keepends=True) if not line.startswith(key))
    with pytest.raises(BadTable, match=f"base.f64: {key} must be given"):
        table(BASE.replace(GROUNDS, without, 1))
    with pytest.raises(BadTable, match=rf"override 1 \(tight\): {key} must be given"):
        table(BASE + override(quantity='"o"', grounds=without))


@pytest.mark.parametrize("key", ["reason", "evidence"])
@pytest.mark.parametrize("value", ['""', '"  "', "3"])
def test_grounds_that_say_nothing_are_refused(table, key, value):
    empty = re.sub(f'{key} = ".*"', f"{key} = {value}", GROUNDS)
    with pytest.raises(BadTable, match=f"{key} must be a text that says something"):
        table(BASE + override(quantity='"o"', grounds=empty))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('"2026-01-31"', "must be a TOML date"),
        ("2026-01-31T10:00:00", "must be a TOML date"),
        (str(date.today() + timedelta(days=2)), "must not be in the future"),
    ],
)
def test_a_date_is_a_date_that_has_been(table, value, says):
    with pytest.raises(BadTable, match=f"base.f64: date {says}"):
        table(BASE.replace("2026-01-31", value))


@pytest.mark.parametrize("units", ["0", "-3", "nan", "inf", "-inf", '"8"', "true"])
def test_units_are_positive_and_finite(table, units):
    with pytest.raises(BadTable, match="units must be a positive, finite number of units"):
        table(BASE + override(units=units, quantity='"o"'))


@pytest.mark.parametrize("arithmetic", DTYPES)
def test_no_row_exceeds_the_cap(table, arithmetic):
    at, over = CAP[arithmetic], CAP[arithmetic] * 1.01
    assert table(BASE + override(arithmetic=f'"{arithmetic}"', units=at, quantity='"o"')).overrides[0].units == at
    with pytest.raises(BadTable, match=rf"units must be at most {at:g} in {arithmetic}, the cap"):
        table(BASE + override(arithmetic=f'"{arithmetic}"', units=over, quantity='"o"'))
    with pytest.raises(BadTable, match=rf"base.{arithmetic}: units must be at most"):
        table(re.sub(rf"(\[base.{arithmetic}\]\nunits = ).*", rf"\g<1>{over}", BASE))


def test_a_row_for_two_arithmetics_keeps_to_the_lower_cap(table):
    with pytest.raises(BadTable, match="units must be at most 4 in bf16"):
        table(BASE + override(arithmetic='["f32", "bf16"]', units="5", quantity='"o"'))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"quantity": '"dk"'}, {"quantity": '["dv", "dk"]'}),
        ({"quantity": '"dk"'}, {"regime": '"typical"'}),
        ({"implementation": '["mine", "yours"]', "quantity": '"o"'}, {"implementation": '"yours"'}),
        ({"platform": '"cpu"'}, {"platform": '"cpu"', "quantity": '"o"', "regime": '"typical"'}),
    ],
)
def test_two_overrides_of_one_point_are_refused_by_both_names(table, first, second):
    with pytest.raises(BadTable, match=r"one and two overlap: .* Exactly one row must decide"):
        table(BASE + override("one", **first) + override("two", **second))


@pytest.mark.parametrize(
    "axis",
    [
        ("arithmetic", '"f64"', '"f32"'),
        ("implementation", '"mine"', '"yours"'),
        ("dtype", '"f64"', '"f32"'),
        ("quantity", '["o", "dk"]', '["dv", "dq"]'),
        ("regime", '"typical"', '"tiny_keys"'),
        ("platform", '"cpu"', '"gpu"'),
    ],
)
def test_one_axis_that_differs_keeps_two_overrides_apart(table, axis):
    name, one, two = axis
    common = {"quantity": '"o"'}
    read = table(BASE + override("one", **common | {name: one}) + override("two", **common | {name: two}))
    assert len(read.overrides) == 2


# The table of this checkout: more in test_headroom


@pytest.mark.parametrize("arithmetic", DTYPES)
def test_a_cap_is_twice_what_right_code_is_allowed_and_no_more(arithmetic):
    assert CAP[arithmetic] <= 2 * limits().base[arithmetic].units


@pytest.mark.parametrize("row", limits().rows, ids=lambda row: row.name)
def test_a_limit_leaves_no_room_for_a_wrong_digit(row):
    """What is accepted stays below a sixtieth of what it is measured by, in f32 below a hundred-thousandth."""
    for arithmetic in row.selector.axes["arithmetic"]:
        assert row.units * UNIT_ROUNDOFF[arithmetic] <= {"f64": 1e-14, "f32": 1e-5, "bf16": 1 / 60}[arithmetic]
        assert row.units <= CAP[arithmetic]
