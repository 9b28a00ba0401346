"""Collect what the items of the gate found, over all workers; at the end print the table and write the documents."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from parity.report.accuracy import Record, as_json, as_markdown, as_text, table
from parity.report.command import refresh
from parity.report.documents import Failures
from parity.report.failures import Failure, first_few
from parity.report.json_form import decode, encode
from parity.tolerances.provenance import provenance

RECORD = "parity record"
FAILURE = "parity failure"
_ITEM = re.compile(r"\[(\w+-(?:f64|f32|bf16)-\w+-\w+-shard\d+of\d+-\w+)\]$")
TITLE = "Accuracy, worst case per implementation, dtype and quantity"


class AccuracyReporter:
    """A pytest plugin of the process that reports: it sees the results of all workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records: list[Record] = []
        self.failures: dict[tuple[str, int], Failure] = {}
        self.unmeasured: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        item = _ITEM.search(report.nodeid)
        if report.failed and item and not any(name == RECORD for name, _ in report.user_properties):
            self.unmeasured.append(item[1])
        if report.when != "call":
            return
        self.records += [Record(**value) for name, value in report.user_properties if name == RECORD]  # type: ignore[arg-type]
        for name, value in report.user_properties:
            if name == FAILURE:  # two workers may meet one case
                failure: Failure = decode(Failure, value)
                self.failures.setdefault((failure.case, failure.ranks), failure)

    @property
    def nothing_judged(self) -> bool:
        """Whether the gate was asked and everything was not applicable: that verifies nothing, so it is no success."""
        return bool(self.records) and all(record.not_applicable for record in self.records)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.nothing_judged and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not (self.records or self.unmeasured):
            return
        rows, around = table(self.records), provenance()
        title = f"{TITLE}, on {around['platform']}"
        terminalreporter.section(title)
        terminalreporter.write_line(as_text(rows))
        for reason, count in self._not_applicable():
            terminalreporter.write_line(f"not applicable, {count} items: {reason}")
        if self.unmeasured:
            some = first_few(self.unmeasured)
            terminalreporter.write_line(
                f"{len(self.unmeasured)} failing items were not measured, and are in no row: {some}", red=True
            )
        if self.nothing_judged:
            terminalreporter.write_line("Nothing was judged: every item is not applicable.", red=True)

        markdown = as_markdown(rows, title)
        self._write(markdown, as_json(rows, title, around), around)
        terminalreporter.write_line(f"written to {self.directory / 'accuracy.md'} and accuracy.json")
        terminalreporter.write_line(refresh(self.directory))
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown)

    def _write(self, markdown: str, json: str, around: Mapping[str, object]) -> None:
        """The documents of the gate, failures.json also where nothing failed: an older one would be taken for ours."""
        failures = Failures([self.failures[key] for key in sorted(self.failures)], around, self.unmeasured)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "accuracy.md").write_text(markdown, encoding="utf-8")
        (self.directory / "accuracy.json").write_text(json, encoding="utf-8")
        (self.directory / "failures.json").write_text(encode(failures), encoding="utf-8")

    def _not_applicable(self) -> list[tuple[str, int]]:
        reasons = [f"{r.implementation}: {r.not_applicable}" for r in self.records if r.not_applicable]
        return [(reason, reasons.count(reason)) for reason in sorted(set(reasons))]
