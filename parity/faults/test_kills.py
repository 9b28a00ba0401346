"""The kill table: which quantity had to be wrong, which was, and what survives."""

import json
from dataclasses import replace

from oracles.gated_delta_rule import QUANTITIES
from parity.faults.kills import EVERY_QUANTITY, Kill, as_json, as_markdown, as_text

UNITS = dict.fromkeys(QUANTITIES, 1.0)
LIMITS = dict.fromkeys(QUANTITIES, 32.0)
LATE = Kill(
    "late",
    "a cause",
    "rule",
    "",
    "f64",
    "typical",
    1,
    "o",
    1000.0,
    UNITS | {"o": 1e9, "dk": 33.0, "dv": float("inf")},
    LIMITS,
    True,
)
SURVIVES = replace(LATE, fault="alive", units=UNITS, killed=False, complaints=["o is off by 0.03 limits"])
NULL = replace(LATE, fault="nothing", kind="null", must_fail=EVERY_QUANTITY, units=dict.fromkeys(QUANTITIES, 1e5))
ELSEWHERE = replace(LATE, implementation="mine", units={}, limits={}, killed=False, not_applicable="no gradients")
KILLS = (NULL, ELSEWHERE, SURVIVES, LATE)


def line_of(text, name):
    return next(line for line in text.splitlines() if line.startswith((name, f"| {name}")))


def test_what_had_to_be_wrong_and_what_is_wrong_too_stand_out():
    line = line_of(as_text(KILLS), "late ")
    assert "[1.0e+09]" in line
    assert "33*" in line
    assert "inf*" in line
    assert line.count("*") == 2
    markdown = line_of(as_markdown(KILLS, "title"), "late ")
    assert "**1.0e+09**" in markdown
    assert "*33*" in markdown


def test_a_null_model_had_to_be_wrong_everywhere():
    assert line_of(as_text(KILLS), "nothing").count("[1.0e+05]") == len(QUANTITIES)


def test_a_survivor_says_so_and_a_kill_does_not():
    lines = as_text(KILLS).splitlines()
    assert [line for line in lines if line.endswith("SURVIVES: o is off by 0.03 limits")] == [
        line_of(as_text(KILLS), "alive")
    ]
    assert "[1]" in line_of(as_text(KILLS), "alive")


def test_what_is_not_applicable_says_why():
    assert as_text(KILLS).splitlines()[-1].endswith("not applicable: no gradients")


def test_the_order_of_the_kills_does_not_matter():
    assert as_text(KILLS) == as_text(KILLS[::-1])
    assert as_json(KILLS, {}) == as_json(KILLS[::-1], {})
    names = [line.split()[0] for line in as_text(KILLS).splitlines()[1:]]
    assert names == ["alive", "late", "nothing", "late"]


def test_json_has_no_infinity_and_full_precision():
    document = json.loads(as_json([LATE], {"jax": "0"}), parse_constant=lambda name: 1 / 0)
    assert document["environment"] == {"jax": "0"}
    rows = document["kills"]
    assert rows[0]["units"] == UNITS | {"o": 1e9, "dk": 33.0, "dv": "inf"}
    assert (rows[0]["must_fail"], rows[0]["killed"], rows[0]["cause"]) == ("o", True, "a cause")


def test_markdown_is_one_table():
    lines = as_markdown(KILLS, "title").splitlines()
    assert lines[0] == "## title"
    assert len({line.count("|") for line in lines[2:]}) == 1
