"""The page: read as a tree, it has the numbers, escapes what it is given, and loads nothing."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parity.report.conftest import Node
from parity.report.documents import Accuracy, Failures, Kills, Run
from parity.report.failures import Failure
from parity.report.page import html

Parse = Callable[[str], Node]


def test_the_head_counts_and_names_what_is_furthest(parsed: Parse, run: Run) -> None:
    head = parsed(html(run)).one("header")
    assert [card.text for card in head.one("ul", "cards").all("li")] == [
        "8 judged",
        "✗ 3 failed",
        "0 expected deviations",
        "7 not applicable",
    ]
    assert "Furthest over its limit: inf of 32 units (infinite), in o of mine, f64." in head.text
    assert [(d.text) for d in head.one("dl", "provenance").all("dt")] == ["jax", "digests oracle", "flags"]


def test_the_accuracy_table_has_bars_and_their_numbers(parsed: Parse, run: Run) -> None:
    rows = [r for r in parsed(html(run)).section("accuracy").all("tr") if any(r.all("td"))]
    o, dq, dk = ([cell.text for cell in row.all("td")] for row in rows)
    assert (o[0], o[1]) == ("inf of 32 infinite", "✗ 3")
    assert (dq[0], dq[1]) == ("8 of 32 25%", "0")
    assert dk[0] == "not applicable"
    widths = [
        float(next(row.all("rect", name)).attributes["width"] or 0)
        for row, name in zip(rows, ("bar-over", "bar-within"), strict=False)
    ]
    limit = float(next(rows[0].all("line", "bar-limit")).attributes["x1"] or 0)
    assert widths == [limit * 1.25, limit * 0.25]


def test_a_heat_map_has_its_cells_borders_and_marks(parsed: Parse, run: Run) -> None:
    pictures = list(parsed(html(run)).section("failures").all("svg", "heat-map"))
    by_quantity = {(picture.attributes["aria-label"] or "").partition(",")[0]: picture for picture in pictures}
    assert list(by_quantity) == ["o", "final_state"]  # dq is right and dk was not measured
    o = by_quantity["o"]
    assert len(list(o.all("rect", "cell"))) == 3 * 2 * 2 * 3
    assert len(list(o.all("line", "rank-border"))) == 2
    over = [cell for cell in o.all("rect", "over") if "infinite" not in cell.classes]
    centres = [float(cell.attributes["x"] or 0) + float(cell.attributes["width"] or 0) / 2 for cell in over]
    assert [float(mark.attributes["cx"] or 0) for mark in o.all("circle", "mark")] == centres
    assert len(centres) == 4
    infinite = list(o.all("rect", "infinite"))
    assert [cell.attributes["fill"] for cell in infinite] == ["url(#infinite)"] * 4
    assert infinite[0].one("title").text == "rank 2, tokens 200-263, row 0, head 1: inf units"
    assert [t.text for t in o.all("text", "rank-name")] == ["rank 0", "rank 1", "rank 2"]
    assert o.attributes["role"] == "img"
    assert len(list(by_quantity["final_state"].all("rect", "cell"))) == 3 * 2 * 3


def test_a_heat_map_has_a_table_of_the_same_numbers(parsed: Parse, run: Run) -> None:
    table = next(parsed(html(run)).section("failures").all("figure")).one("table")
    rows = [[cell.text for cell in row.all("td")] for row in table.all("tr")][1:]
    assert rows[1] == ["1.5", "1.5", "64", "64", "inf", "inf"]
    assert rows[0] == ["1"] * 6


def test_the_message_is_text_and_can_be_folded(parsed: Parse, run: Run, failure: Failure) -> None:
    page = html(run)
    message = parsed(page).section("failures").one("details", "message")
    assert message.one("pre").children == [failure.message]
    assert "<script" not in page
    assert not list(parsed(page).all("script"))


def test_what_was_not_measured_is_said_and_not_drawn(parsed: Parse, run: Run) -> None:
    assert parsed(html(run)).one("p", "not-measured").text == "dk not measured: RuntimeError: <no> kernel"


def test_the_kill_table_frames_what_had_to_fail_and_starts_with_survivors(parsed: Parse, run: Run) -> None:
    section = parsed(html(run)).section("kills")
    assert "✗ 2 faults on 4 problems: 2 killed, 1 SURVIVED, 1 not applicable." in section.text
    groups = [group.text for group in section.all("tr", "group")]
    names = ("survivor", "killed_fault", "killed_fault around mine")
    assert groups == [f"{name} hand_over: no <exchange> between ranks" for name in names]
    assert [cell.text for cell in section.all("td", "must-fail")] == ["20", "6.4e+12", "inf", "-"]
    assert [bool(list(cell.all("strong"))) for cell in section.all("td", "must-fail")] == [False, True, True, False]
    results = ["✗ SURVIVED", "✓ killed", "✓ killed", "not applicable: no gradients"]
    assert [cell.text for cell in section.all("td", "result")] == results


def test_the_page_loads_nothing(run: Run) -> None:
    page = html(run, replace(run, directory=Path("before")))
    assert not re.search(r"https?:|//[a-z]|@import|\ssrc=|<link|<script", page)
    assert set(re.findall(r'href="(.)', page)) == {"#"}
    assert set(re.findall(r"url\((.)", page)) == {"#"}


@pytest.mark.parametrize("absent", ["accuracy", "failures", "kills"])
def test_what_is_absent_is_said(parsed: Parse, run: Run, absent: str) -> None:
    page = parsed(html(replace(run, **{absent: None})))
    assert page.one("p", "absent").text.startswith(f"{absent}.json is absent")


def test_a_green_run_says_so(parsed: Parse, run: Run) -> None:
    assert run.accuracy is not None
    green = replace(run, accuracy=replace(run.accuracy, rows=run.accuracy.rows[1:]), failures=Failures([]))
    page = parsed(html(green))
    assert "✓ 0 failed" in page.one("header").text
    assert "Nearest to its limit: 8 of 32 units (25%)" in page.one("header").text
    assert "No case failed." in page.section("failures").text


def test_twenty_cases_are_drawn_and_the_rest_counted(parsed: Parse, run: Run, failure: Failure) -> None:
    many = Failures([replace(failure, case=f"case{i}") for i in range(23)])
    section = parsed(html(replace(run, failures=many))).section("failures")
    assert len(list(section.all("article"))) == 20
    assert "23 failing cases, worst first; 20 are shown, and 3 more stand in failures.json." in section.text
    targets = {(a.attributes["href"] or "")[1:] for a in section.all("a")}
    assert targets == {article.attributes["id"] for article in section.all("article")}


def test_documents_of_different_runs_are_told_apart(parsed: Parse, run: Run) -> None:
    assert run.kills is not None
    later = replace(run, failures=replace(run.failures, environment={}), kills=Kills(run.kills.kills, {"jax": "0.12"}))
    assert [note.text for note in parsed(html(later)).all("p", "note")] == [
        "Note: failures.json does not say which code and machine it is of.",
        "Note: kills.json is of another run than accuracy.json: they differ in digests oracle, flags, jax.",
    ]
    assert not list(parsed(html(run)).all("p", "note"))


def test_two_runs_stand_side_by_side(parsed: Parse, run: Run) -> None:
    assert run.accuracy is not None
    rows = [replace(run.accuracy.rows[1], units=4.0, limit=16.0), replace(run.accuracy.rows[0], implementation="gone")]
    before = Run(Path("before"), Accuracy("title", rows, {"jax": "0.9", "flags": "<none>"}), None, None)
    page = parsed(html(run, before))
    provenance = page.one("table", "provenance")
    assert _cells(provenance)[1:3] == [["jax", "0.9", "0.10.2 differs"], ["flags", "<none>", "<none>"]]
    assert _cells(page.section("compared"))[1:3] == [
        ["gone f64 o", "▲ only before", "-", "inf", "-", "32 → -", "3 → -"],
        ["mine f64 dq", "▲ larger limit", "2x", "4", "8", "16 → 32 differs", "0"],
    ]


def _cells(tables: Node) -> list[list[str]]:
    """The text of every cell, by row."""
    return [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in tables.all("tr")]
