"""The pytest side of the catalogue: the mark `faults`, the option `--faults`, and the kill table at the end."""

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from parity.faults import parts
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.kills import Kill, as_json, as_markdown, as_text
from parity.faults.parts import Seen
from parity.faults.planting import plantings
from parity.plugin import IMPLEMENTATIONS
from parity.report.command import refresh
from parity.tolerances.provenance import provenance

KILL = "fault kill"
TITLE = "Planted faults: worst units by quantity"
SEEN = "mistake of a part"
TITLE_OF_PARTS = "Planted mistakes of the parts around the rule: what is wrong, by how many times its limit"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--faults",
        action="store_true",
        help="plant the faults and run nothing else; with --implementation, around that one: would it have been seen?",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: planted mistakes that the gate must catch")
    if not hasattr(config, "workerinput"):
        directory = config.rootpath / config.getoption("parity_report")
        config.pluginmanager.register(KillReporter(directory), "kill-reporter")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "planting" not in metafunc.fixturenames:
        return
    foreign = metafunc.config.getoption("implementation")
    chosen = plantings((*CATALOGUE, *NULL_MODELS), metafunc.config.stash[IMPLEMENTATIONS] if foreign else ())
    metafunc.parametrize("planting", [pytest.param(planting, id=planting.name) for planting in chosen])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("faults"):
        return
    foreign = bool(config.getoption("implementation"))
    is_asked = [
        item.get_closest_marker("faults") is not None
        and (not foreign or "planting" in getattr(item, "fixturenames", ()))
        for item in items
    ]
    config.hook.pytest_deselected(items=[item for item, asked in zip(items, is_asked, strict=True) if not asked])
    items[:] = [item for item, asked in zip(items, is_asked, strict=True) if asked]


@pytest.fixture
def record_kill(request: pytest.FixtureRequest) -> Callable[[Kill], None]:
    """Hand a Kill to the table; it travels with the test's report, from a worker too."""
    return lambda kill: request.node.user_properties.append((KILL, asdict(kill)))


@pytest.fixture
def record_mistake(request: pytest.FixtureRequest) -> Callable[[Seen], None]:
    """The same for a mistake of a part around the rule."""
    return lambda seen: request.node.user_properties.append((SEEN, asdict(seen)))


class KillReporter:
    """A pytest plugin of the process that reports: it sees the results of all workers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kills: list[Kill] = []
        self.of_parts: list[Seen] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.kills += [Kill(**value) for name, value in report.user_properties if name == KILL]  # type: ignore[arg-type]
            self.of_parts += [Seen(**value) for name, value in report.user_properties if name == SEEN]  # type: ignore[arg-type]

    @property
    def nothing_planted(self) -> bool:
        """Whether no fault could be planted: that proves nothing, so it is no success."""
        return bool(self.kills) and all(kill.not_applicable for kill in self.kills)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.nothing_planted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.of_parts:
            terminalreporter.section(TITLE_OF_PARTS)
            terminalreporter.write_line(parts.as_text(self.of_parts))
        if not self.kills:
            return
        terminalreporter.section(TITLE)
        terminalreporter.write_line(as_text(self.kills))
        terminalreporter.write_line(self._counted())

        self.directory.mkdir(parents=True, exist_ok=True)
        markdown = as_markdown(self.kills, TITLE)
        if self.of_parts:
            markdown += "\n" + parts.as_markdown(self.of_parts, TITLE_OF_PARTS)
        (self.directory / "kills.md").write_text(markdown, encoding="utf-8")
        (self.directory / "kills.json").write_text(as_json(self.kills, provenance()), encoding="utf-8")
        terminalreporter.write_line(f"written to {self.directory / 'kills.md'} and kills.json")
        terminalreporter.write_line(refresh(self.directory))
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown)

    def _counted(self) -> str:
        planted = [kill for kill in self.kills if not kill.not_applicable]
        faults = {(kill.fault, kill.implementation) for kill in planted}
        survivors = {(kill.fault, kill.implementation) for kill in planted if not kill.killed}
        left_out = {(kill.fault, kill.implementation) for kill in self.kills if kill.not_applicable}
        return (
            f"{len(faults)} faults planted, {len(survivors)} of them survived, {len(left_out)} not applicable; "
            f"in brackets what had to be wrong, * wrong too"
        )
