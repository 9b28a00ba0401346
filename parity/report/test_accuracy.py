"""The table: the right worst case, whatever the order of the records, and numbers that JSON can hold."""

import json
import math
import random

import pytest

from parity.report.accuracy import Record, Worst, as_json, as_markdown, as_text, table


def _records() -> list[Record]:
    def judged(
        item: str,
        units: float,
        limit: float = 32.0,
        quantity: str = "o",
        dtype: str = "f64",
        regime: str = "typical",
        expected: bool = False,
    ) -> Record:
        arithmetic = "f32" if dtype == "bf16" else dtype
        return Record(
            *("mine", dtype, quantity, item, arithmetic),
            units=units,
            limit=limit,
            relative_error=1e-15,
            passes=units <= limit or expected,
            regime=regime,
            limit_row=f"at_{limit:g}",
            expected=expected,
        )

    return [
        judged("a", 3.0),
        judged("b", 5.0),
        judged("c", 4.5, limit=8.0, regime="tiny_keys"),  # nearer to its limit than b
        judged("d", float("inf"), quantity="dk"),
        judged("e", 1.0, quantity="dk"),
        judged("f", 0.5, limit=2.0, dtype="bf16"),
        judged("i", 40.0, quantity="dv", expected=True),
        Record("mine", "f32", "o", "g", not_applicable="no arithmetic is claimed for f32"),
        Record("mine", "f64", "o", "h", not_applicable="no grouped heads"),
    ]


def test_a_row_holds_the_case_nearest_to_its_limit_and_counts_the_rest() -> None:
    rows = {(row.dtype, row.quantity): row for row in table(_records())}
    o = rows["f64", "o"]
    assert (o.worst_item, o.units, o.limit, o.limit_row) == ("c", 4.5, 8.0, "at_8")
    assert (o.judged, o.failed, o.expected, o.not_applicable) == (3, 0, 0, 1)
    dk = rows["f64", "dk"]
    assert (dk.worst_item, dk.judged, dk.failed) == ("d", 2, 1)
    dv = rows["f64", "dv"]
    assert (dv.units, dv.limit, dv.failed, dv.expected) == (40.0, 32.0, 0, 1)
    nothing = rows["f32", "o"]
    assert (nothing.units, nothing.rms_units, nothing.judged, nothing.not_applicable) == (None, None, 0, 1)
    assert nothing.by_regime == {}


def test_a_row_has_the_rms_of_all_its_items_and_the_worst_of_each_regime() -> None:
    rows = {(row.dtype, row.quantity): row for row in table(_records())}
    o = rows["f64", "o"]
    assert o.rms_units == pytest.approx(math.sqrt((3.0**2 + 5.0**2 + 4.5**2) / 3))
    assert o.by_regime == {"tiny_keys": Worst(4.5, "c"), "typical": Worst(5.0, "b")}
    assert rows["f64", "dk"].rms_units == math.inf


def test_the_order_of_the_records_does_not_matter() -> None:
    shuffled = _records()
    random.Random(1).shuffle(shuffled)
    assert table(shuffled) == table(_records())


def test_rows_stand_in_the_order_of_dtypes_and_quantities() -> None:
    assert [(row.dtype, row.quantity) for row in table(_records())] == [
        ("f64", "o"),
        ("f64", "dk"),
        ("f64", "dv"),
        ("f32", "o"),
        ("bf16", "o"),
    ]


def test_a_failure_stands_out_in_every_form() -> None:
    rows = table(_records())
    assert "1 FAILED" in as_text(rows)
    assert "1 FAILED" in as_markdown(rows, "title")
    assert "at_8" in as_text(rows)
    assert "at_8" in as_markdown(rows, "title")
    read = json.loads(as_json(rows, "title", {"jax": "0"}), parse_constant=lambda name: 1 / 0)
    assert read["rows"][1]["units"] == read["rows"][1]["rms_units"] == "inf"
    assert read["rows"][0]["limit_row"] == "at_8"
    assert read["rows"][0]["by_regime"]["tiny_keys"] == {"units": 4.5, "item": "c"}
    assert read["rows"][0]["units"] == 4.5


def test_a_claim_other_than_the_dtype_is_shown() -> None:
    text = as_text(table(_records()))
    assert "bf16 in f32" in text
    assert "f64 in" not in text


def test_markdown_is_one_table() -> None:
    lines = as_markdown(table(_records()), "title").splitlines()
    assert lines[0] == "## title"
    assert len({line.count("|") for line in lines[2:]}) == 1
