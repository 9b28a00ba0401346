"""`--tpu`: the gate on the TPU chips of this machine, which belong to one process each.

One worker has all chips, so that it runs cases over several of them too. Where more workers are asked for there are no
more than chips, each with one of its own.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from parity.report.reporter import RECORD
from parity.tpu.applicable import Needs, here, not_applicable, of_parameters
from parity.tpu.chips import Chips, NoChips, found, leave, take

CHIPS = pytest.StashKey[Chips]()  # not in workers
FREE = pytest.StashKey[list[str]]()
ASKED = pytest.StashKey[int]()
CHIP = "tpu_chip"

_REASON = re.compile(r"Skipped: not applicable: (.*)", re.DOTALL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--tpu",
        action="store_true",
        help="run the gate on the TPU chips of this machine, in one worker that has all of them; with -n 8 in workers "
        "that have one each, and no more of them than chips",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Before anything runs: a machine without a TPU is told so, and xdist how many workers there may be."""
    if not config.getoption("tpu") or _is_worker(config):
        return None
    for other in ("faults", "tpu_interpret"):
        if config.getoption(other):
            raise pytest.UsageError(f"--tpu runs the gate, compiled; leave out --{other.replace('_', '-')}")
    try:
        chips = found()
    except NoChips as error:
        print(f"pytest --tpu: {error}", file=sys.stderr)
        return 1
    config.stash[CHIPS] = chips
    config.stash[FREE] = [*reversed(chips.names)]
    asked = config.option.numprocesses
    config.stash[ASKED] = asked if isinstance(asked, int) else 1
    config.option.maxprocesses = min(config.option.maxprocesses or len(chips.names), len(chips.names))
    return None


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    return 1 if config.getoption("tpu") else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before the other plugins, which import an implementation that may start jax."""
    config.addinivalue_line("markers", "ranks(n): a test of the gate over so many ranks, where no parameter says it")
    if not config.getoption("tpu"):
        return
    if _is_worker(config):
        take(config.workerinput[CHIP])  # type: ignore[attr-defined]
    elif _workers(config) or config.getoption("collectonly"):
        leave(config.stash[CHIPS])
    else:
        take(None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker that is to start gets a chip, and the one worker all; the next in place of it those of the one that
    ended.
    """
    if not node.config.getoption("tpu"):
        return
    if _workers(node.config) == 1:
        node.workerinput[CHIP] = None
    elif node.config.stash[FREE]:
        node.workerinput[CHIP] = node.config.stash[FREE].pop()  # what was freed last is that of the one that ended
    else:
        chips = len(node.config.stash[CHIPS].names)
        raise pytest.UsageError(f"--tpu: a chip belongs to one process, and all {chips} have theirs; use -n, not --tx")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    chip = node.workerinput.get(CHIP)
    if chip is not None:
        node.config.stash[FREE].append(chip)


def pytest_report_header(config: pytest.Config) -> list[str]:
    if CHIPS not in config.stash:  # a worker's, which nobody reads
        return []
    about, chips, workers = config.stash[CHIPS].about, len(config.stash[CHIPS].names), _workers(config)
    who = "this process" if workers == 0 else "1 worker" if workers == 1 else f"{workers} workers"
    has = "with a chip each, where what needs several is not applicable" if workers > 1 else "with all of them"
    fewer = f" ({config.stash[ASKED]} were asked for: a chip belongs to one process)" * (config.stash[ASKED] > chips)
    return [
        f"on TPUs: {about['device_kind']}, platform {about['platform']}, {chips} chip{'s' * (chips > 1)}, "
        f"{who} {has}{fewer}"
    ]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The suite's tests of itself are about CPUs, and left out."""
    if not config.getoption("tpu"):
        return
    is_gate = [item.get_closest_marker("gate") is not None for item in items]
    config.hook.pytest_deselected(items=[item for item, asked in zip(items, is_gate, strict=True) if not asked])
    items[:] = [item for item, asked in zip(items, is_gate, strict=True) if asked]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """On TPUs, asked for or not; an item of the gate says it itself, with its record in the table."""
    if item.get_closest_marker("gate") is None or _has_record(item):
        return
    reason = not_applicable(needs(item), here())
    if reason:
        pytest.skip(f"not applicable: {reason}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was not asked, and why: of tests without a row in the accuracy table, or of all where they are collected
    alone, and there with `-v` which.
    """
    if CHIPS not in config.stash:
        return
    if not config.getoption("collectonly"):
        skipped = Counter(_skipped(terminalreporter.stats.get("skipped", ())))
        for reason, count in sorted(skipped.items()):
            terminalreporter.write_line(f"not applicable, {count} tests: {reason}")
        return
    devices = config.stash[CHIPS].of_a_process(max(1, _workers(config)))
    items: list[pytest.Item] = terminalreporter._session.items
    reasons = {item.nodeid: not_applicable(needs(item), devices) for item in items}
    asked = sum(reason is None for reason in reasons.values())
    terminalreporter.write_line(f"{asked} of {len(items)} tests can be asked here")
    for reason in sorted({reason for reason in reasons.values() if reason}):
        which = [nodeid for nodeid, why in reasons.items() if why == reason]
        terminalreporter.write_line(f"not applicable, {len(which)} tests: {reason}")
        for nodeid in which if config.option.verbose > 0 else ():
            terminalreporter.write_line(f"    {nodeid}")


def needs(item: pytest.Item) -> Needs:
    """What a test of the gate takes."""
    callspec, mark = getattr(item, "callspec", None), item.get_closest_marker("ranks")
    return of_parameters(callspec.params if callspec else {}, mark.args[0] if mark else None)


def _skipped(reports: Iterable[pytest.TestReport]) -> Iterable[str]:
    for report in reports:
        told = _REASON.match(str(report.longrepr[2])) if isinstance(report.longrepr, tuple) else None
        if told and not any(name == RECORD for name, _ in report.user_properties):
            yield told[1]


def _has_record(item: pytest.Item) -> bool:
    return "item" in getattr(item, "fixturenames", ())


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _workers(config: pytest.Config) -> int:
    """How many processes xdist starts; 0 where this one runs the tests itself."""
    tx: Sequence[str] = config.getoption("tx", [])
    return len(tx) if config.getoption("dist") != "no" else 0
