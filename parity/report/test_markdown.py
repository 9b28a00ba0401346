"""The same in Markdown: tables that stay tables, and messages that stay text."""

from dataclasses import replace
from pathlib import Path

import pytest

from parity.report.documents import Accuracy, Failures, Run
from parity.report.failures import Failure
from parity.report.markdown import escape, fenced, markdown, table


def test_the_page_has_the_numbers(run: Run) -> None:
    text = markdown(run)
    assert "8 judged, 3 failed, 0 expected deviations, 7 not applicable. Furthest over its limit: inf of 32" in text
    assert "| mine | f64 | dq | 8 | 32 | - | 25% |" in text
    assert "### mine-f64-typical-ragged on 3 ranks" in text
    assert "| o | 32 | inf | 0: 2, 1: 64, 2: inf |" in text
    assert "2 faults on 4 problems: 2 killed, 1 SURVIVED, 1 not applicable." in text
    assert "| survivor |  | f64 | typical | 4 | dq | 1 | 20 | 0.625 | 1000 | SURVIVED |" in text


def test_every_line_of_a_table_has_as_many_cells() -> None:
    lines = table(("a", "b|c"), [("<x> & y", "new\nline"), ("`code`", "*")]).splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert len(lines) == 4


def test_text_is_no_markup() -> None:
    assert escape("<b> a_b | `c`") == "\\<b\\> a\\_b \\| \\`c\\`"


def test_a_message_may_hold_a_fence() -> None:
    assert fenced("a\n````\nb").splitlines()[0] == "`````text"


def test_what_is_absent_is_said() -> None:
    text = markdown(Run(Path("now"), None, None, None))
    assert [name for name in ("accuracy", "failures", "kills") if f"{name}.json is absent" in text] == [
        "accuracy",
        "failures",
        "kills",
    ]


def test_cases_beyond_the_twentieth_are_counted(run: Run, failure: Failure) -> None:
    many = Failures([replace(failure, case=f"case{i}") for i in range(23)])
    text = markdown(replace(run, failures=many))
    assert text.count("### case") == 20
    assert "3 more failing cases are in failures.json." in text


def test_two_runs_stand_side_by_side(run: Run) -> None:
    assert run.accuracy is not None
    rows = [replace(row, units=row.units and 4.0, failed=0) for row in run.accuracy.rows]
    before = Run(Path("before"), Accuracy("title", rows, {"jax": "0.9"}), None, None)
    text = markdown(run, before)
    assert "| jax | 0.9 | 0.10.2 | differs |" in text
    assert "| mine | f64 | o | 4 | inf | infinitely | ▲ now fails | 32 | 0 → 3 |" in text
    assert "| mine | f64 | dq | 4 | 8 | 2x | ▲ worse | 32 | 0 |" in text


@pytest.mark.parametrize("side", ["now", "before"])
def test_there_may_be_nothing_to_compare(run: Run, side: str) -> None:
    nothing = replace(run, accuracy=None)
    assert "There is nothing to compare" in markdown(*((nothing, run) if side == "now" else (run, nothing)))
