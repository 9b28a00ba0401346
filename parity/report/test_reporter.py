"""What a run leaves behind is its own, whole, and beside what other kinds of run left."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from parity.report.accuracy import Record
from parity.report.documents import Run, read
from parity.report.failures import Failure, Measured
from parity.report.json_form import encode
from parity.report.reporter import FAILURE, RECORD, AccuracyReporter

WRONG = Record("mine", "f64", "o", "item", "f64", None, 64.0, 32.0, 1.0, False, "typical")


@pytest.fixture(autouse=True)
def at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No summary is appended where these tests themselves run in CI."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def _finish(directory: Path, *found: Record | Failure) -> list[str]:
    """A run in which each of `found` came with a test of its own; the lines that it printed."""
    reporter = AccuracyReporter(directory)
    for x in found:
        properties = [(FAILURE if isinstance(x, Failure) else RECORD, asdict(x))]
        for when in ("setup", "call", "teardown"):
            report = pytest.TestReport("id", ("file", 1, "id"), {}, "passed", None, when, user_properties=properties)
            reporter.pytest_runtest_logreport(report)
    terminal = create_autospec(pytest.TerminalReporter, instance=True)
    reporter.pytest_terminal_summary(terminal)
    return [call.args[0] for call in terminal.write_line.call_args_list]


def test_failures_and_pages_are_written(tmp_path: Path, failure: Failure) -> None:
    elsewhere = replace(failure, ranks=1, tokens=100, quantities={"dq": Measured(32.0, [[[[99.0], [1.0]]]])})
    lines = _finish(tmp_path, WRONG, failure, failure, elsewhere)
    run = read(tmp_path)
    assert run.failures is not None
    assert run.failures.failures == [elsewhere, failure]  # once each, though two workers may meet one case
    assert run.accuracy is not None
    assert run.failures.environment == run.accuracy.environment != {}
    assert f"report in {tmp_path / 'report.html'}" in lines
    assert "rank-border" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.md").exists()


def test_a_green_run_leaves_no_failures_of_an_earlier_one(tmp_path: Path, failure: Failure) -> None:
    _finish(tmp_path, WRONG, failure)
    _finish(tmp_path, replace(WRONG, units=1.0, passes=True))
    assert json.loads((tmp_path / "failures.json").read_text())["failures"] == []
    assert "No case failed." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_without_the_gate_touches_nothing(tmp_path: Path, failure: Failure) -> None:
    _finish(tmp_path, WRONG, failure)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert _finish(tmp_path) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_gate_leaves_the_kill_table_of_another_run_and_shows_it(tmp_path: Path, run: Run) -> None:
    kills = encode(run.kills)
    (tmp_path / "kills.json").write_text(kills)
    _finish(tmp_path, WRONG)
    assert (tmp_path / "kills.json").read_text() == kills
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "SURVIVED" in page
    assert "kills.json is of another run" in page


def test_a_damaged_kill_table_costs_the_page_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kills.json").write_text("{")
    lines = _finish(tmp_path, WRONG)
    assert any(line.startswith("no report is written") and "kills.json is not JSON" in line for line in lines)
    assert (tmp_path / "accuracy.json").exists()
    assert not (tmp_path / "report.html").exists()


def test_what_failed_without_being_measured_is_counted_and_named(tmp_path: Path) -> None:
    """The report of a worker that ended; a run with nothing else writes its documents too."""
    reporter = AccuracyReporter(tmp_path)
    for quantity in ("o", "dk", "dv", "dg"):
        node = f"parity/test_backward.py::test_backward[mine-f64-typical-short-shard0of1-{quantity}]"
        reporter.pytest_runtest_logreport(pytest.TestReport(node, ("file", 1, "id"), {}, "failed", "crashed", "???"))
    for other in ("parity/test_unit.py::test_units", "parity/test_x.py::test_x[mine]"):
        reporter.pytest_runtest_logreport(pytest.TestReport(other, ("file", 1, "id"), {}, "failed", "red", "call"))
    terminal = create_autospec(pytest.TerminalReporter, instance=True)
    reporter.pytest_terminal_summary(terminal)
    named = ", ".join(f"mine-f64-typical-short-shard0of1-{quantity}" for quantity in ("o", "dk", "dv")) + " and 1 more"
    lines = [call.args[0] for call in terminal.write_line.call_args_list]
    assert f"4 failing items were not measured, and are in no row: {named}" in lines
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert f"4 failing items were not measured: {named}." in text
        assert "No case failed." not in text
