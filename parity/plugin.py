"""The pytest side: options, the items of the gate, and the accuracy table at the end."""

import gc
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import implementations
from implementations.contract import Implementation
from parity.explain import rerun_command
from parity.gate import Recorder
from parity.load import CannotLoad, load
from parity.matrix import FULL, Case, Item, cases, items
from parity.report.accuracy import Record
from parity.report.failures import Failure
from parity.report.reporter import FAILURE, RECORD, AccuracyReporter
from parity.scheduling import CompilationScheduling
from parity.seeds import seeds
from parity.tolerances.expectations import Expectation, expectation_of, require_used
from parity.tolerances.expectations import load as load_expectations
from parity.tolerances.limits import limits

ITEMS_BY_QUANTITIES = pytest.StashKey[dict[tuple[str, ...], list[Item]]]()
IMPLEMENTATIONS = pytest.StashKey[Sequence[Implementation]]()
# What takes an implementation's place in the cases that it meets.
AS_RUN = pytest.StashKey[Mapping[Implementation, Implementation]]()
SEEDS = pytest.StashKey[Sequence[int]]()
EXPECTATIONS = pytest.StashKey[Sequence[Expectation]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gdn-parity")
    group.addoption(
        "--implementation",
        action="append",
        default=[],
        metavar="FILE.py:NAME",
        help="run the gate on this Implementation (or sequence of them) and nothing else; also package.module:NAME",
    )
    group.addoption(
        "--expect",
        action="append",
        default=[],
        metavar="FILE.toml",
        help="what an --implementation is known to get wrong (docs/limits.md); repeatable; with the =: --expect=FILE",
    )
    group.addoption(
        "--full",
        action="store_true",
        help="every implementation x dtype x regime x shape x mesh, not the gate's choice",
    )
    group.addoption(
        "--seeds",
        default="0",
        metavar="FIRST-LAST",
        help="fresh values of every regime: a seed or a range of seeds (0, the default, is the gate's own)",
    )
    group.addoption(
        "--parity-report",
        default="build/parity",
        metavar="DIR",
        help="where accuracy.md and accuracy.json go (default: %(default)s); write --parity-report=DIR, with the =",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gate: the parity gate: implementations against the oracles")
    config.stash[ITEMS_BY_QUANTITIES] = {}
    try:
        config.stash[SEEDS] = seeds(config.getoption("seeds"))
        config.stash[IMPLEMENTATIONS] = (
            load(config.getoption("implementation")) or implementations.ALL + implementations.VARIANTS
        )
        limits()
        config.stash[EXPECTATIONS] = _expectations(config)
    except CannotLoad as error:
        raise pytest.UsageError(f"--implementation {error}") from None
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput"):  # a worker's reports reach the process that started it
        directory = config.rootpath / config.getoption("parity_report")
        _require_writable(directory)
        config.pluginmanager.register(AccuracyReporter(directory), "accuracy-reporter")


def _require_writable(directory: Path) -> None:
    """Before anything runs: what is written at the end must have a place."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise pytest.UsageError(f"--parity-report={directory}: nothing can be written there: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tens of thousands of items are made, and no garbage: to look for it among them takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that asks for `item` says which `QUANTITIES` it tests."""
    if "item" not in metafunc.fixturenames:
        return
    quantities = metafunc.module.QUANTITIES
    by_quantities = metafunc.config.stash[ITEMS_BY_QUANTITIES]
    if quantities not in by_quantities:
        by_quantities[quantities] = items(_cases(metafunc.config), quantities)
    metafunc.parametrize(
        "item",
        [pytest.param(item, id=item.name) for item in by_quantities[quantities]],
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """An `--implementation` or other seeds are asked about on their own; the suite's tests of itself are left out."""
    if config.getoption("faults") or not (config.getoption("implementation") or config.stash[SEEDS] != (0,)):
        return
    is_asked = [isinstance(item, pytest.Function) and "item" in item.fixturenames for item in items]
    config.hook.pytest_deselected(items=[item for item, asked in zip(items, is_asked, strict=True) if not asked])
    items[:] = [item for item, asked in zip(items, is_asked, strict=True) if asked]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where `CI` is set pytest repeats the message in its closing summary, whole: there the first line is enough."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and "item" in getattr(item, "fixturenames", ()):
        crash.message = crash.message.partition("\n")[0]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> CompilationScheduling | None:
    return CompilationScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Recorder:
    """Hand a Record to the table, or a Failure to the report; it travels with the test's report, from a worker too."""

    def remember(found: Record | Failure) -> None:
        name = FAILURE if isinstance(found, Failure) else RECORD
        request.node.user_properties.append((name, asdict(found)))

    return remember


@pytest.fixture
def expectation(request: pytest.FixtureRequest, item: Item) -> Expectation | None:
    """What is expected of `item` in place of the limit."""
    return expectation_of(item, request.config.stash[EXPECTATIONS])


@pytest.fixture
def rerun(request: pytest.FixtureRequest, item: Item) -> str:
    """The command that repeats this test alone."""
    config = request.config
    options = "".join(f' --implementation "{spec}"' for spec in config.getoption("implementation"))
    options += "".join(f' "--expect={path}"' for path in config.getoption("expect"))
    options += f" --seeds {item.case.problem.seed}" * bool(item.case.problem.seed)
    options += " --full" * config.getoption("full")
    options += " --tpu" * config.getoption("tpu")
    precision = config.getoption("matmul_precision")
    options += f" --matmul-precision {precision}" if precision else ""
    node = f"{request.node.location[0]}::{request.node.originalname}"
    return rerun_command(item, node, options)


def _cases(config: pytest.Config) -> list[Case]:
    rows = FULL if config.getoption("full") else None
    as_run = config.stash.get(AS_RUN, {})
    found = cases(config.stash[IMPLEMENTATIONS], rows, config.stash[SEEDS])
    return [replace(case, implementation=as_run.get(case.implementation, case.implementation)) for case in found]


def _expectations(config: pytest.Config) -> tuple[Expectation, ...]:
    """Raises BadTable, and UsageError where they would be expected of the suite's own implementations."""
    paths = config.getoption("expect")
    if paths and not config.getoption("implementation"):
        raise pytest.UsageError("--expect is for what comes with --implementation; the suite's own meet their limits")
    rows = load_expectations([Path(path) for path in paths])
    if rows:
        require_used(rows, items(_cases(config)))
    return rows
