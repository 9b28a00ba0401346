"""Collect what the items of the gate found, and print and write the accuracy table at the end."""

import os
from pathlib import Path

import pytest

from parity.report.accuracy import Record, as_json, as_markdown, as_text, table
from parity.tolerances.provenance import provenance

RECORD = "parity record"
TITLE = "Accuracy, worst case per implementation, dtype and quantity"


class AccuracyReporter:
    """A pytest plugin of the process that reports: it sees the results of all workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records: list[Record] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.records += [Record(**value) for name, value in report.user_properties if name == RECORD]  # type: ignore[arg-type]

    @property
    def nothing_judged(self) -> bool:
        """Whether the gate was asked and everything was not applicable: that verifies nothing, so it is no success."""
        return bool(self.records) and all(record.not_applicable for record in self.records)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.nothing_judged and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.records:
            return
        rows = table(self.records)
        terminalreporter.section(TITLE)
        terminalreporter.write_line(as_text(rows))
        for reason, count in self._not_applicable():
            terminalreporter.write_line(f"not applicable, {count} items: {reason}")
        if self.nothing_judged:
            terminalreporter.write_line("Nothing was judged: every item is not applicable.", red=True)

        self.directory.mkdir(parents=True, exist_ok=True)
        markdown = as_markdown(rows, TITLE)
        (self.directory / "accuracy.md").write_text(markdown, encoding="utf-8")
        (self.directory / "accuracy.json").write_text(as_json(rows, TITLE, provenance()), encoding="utf-8")
        terminalreporter.write_line(f"written to {self.directory / 'accuracy.md'} and accuracy.json")
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown)

    def _not_applicable(self) -> list[tuple[str, int]]:
        reasons = [f"{r.implementation}: {r.not_applicable}" for r in self.records if r.not_applicable]
        return [(reason, reasons.count(reason)) for reason in sorted(set(reasons))]
