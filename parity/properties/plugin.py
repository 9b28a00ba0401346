"""The pytest side of the property tests: profiles, the seed, one example from the command line, what a hunt found."""

from collections.abc import Callable
from typing import Any

import pytest

from parity.properties import profiles
from parity.properties.examples import parse
from parity.properties.hold import Property, Session
from parity.properties.worst import PATH

FOUND = "worst case of a property"

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--example",
        metavar="TOML",
        help="hold the chosen property tests to this one example, as a failure prints it, and draw nothing",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before hypothesis reads its options, and before workers inherit them."""
    if config.getoption("hypothesis_profile") in profiles.PROFILES and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = profiles.chosen(config.getoption("hypothesis_profile")).seed()
    if config.getoption("example") is not None:
        try:
            parse(config.getoption("example"))
        except ValueError as error:
            raise pytest.UsageError(f"--example: {error}") from None
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(WorstCases(), "worst-cases")


def pytest_report_header(config: pytest.Config) -> str | None:
    profile, seed = config.getoption("hypothesis_profile"), config.getoption("hypothesis_seed")
    if profile not in profiles.PROFILES or seed is None:
        return None
    return f"property tests: the same again with --hypothesis-profile {profile} --hypothesis-seed {seed}"


class WorstCases:
    """Print what a hunt wrote down, from all workers."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.found += [str(value) for name, value in report.user_properties if name == FOUND]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section(f"Worse than on record: written to {PATH.name}")
            terminalreporter.write_line("\n".join(self.found))


@pytest.fixture
def hold(request: pytest.FixtureRequest) -> Callable[[Property, Any], None]:
    """`hold(property, subject)` as the command line asks for it."""
    config = request.config
    profile, seed = profiles.chosen(config.getoption("hypothesis_profile")), config.getoption("hypothesis_seed")
    session = Session(
        profile,
        None if profile.name == "gate" else seed,
        request.node.nodeid,
        tell=lambda found: request.node.user_properties.append((FOUND, found)),
    )
    line = config.getoption("example")
    if line is None:
        return session.hold

    def only(prop: Property, subject: Any) -> None:
        session.check(prop, subject, parse(line))

    return only
