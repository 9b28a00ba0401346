"""One test of the gate: ask, measure, judge, and explain once."""

from collections.abc import Callable

import pytest

from parity.explain import explain, headline
from parity.matrix import Case, Item
from parity.meshes import MeshTooLarge
from parity.report.accuracy import Record
from parity.report.failures import Failure
from parity.report.from_verdict import failure_of
from parity.truth import UncertifiedOracle
from parity.verdict import judge

Recorder = Callable[[Record | Failure], None]

_explained: dict[Case, str] = {}


def check(item: Item, record: Recorder, rerun: str) -> None:
    """Pass, fail with the reason, or skip as not applicable; `record` is told in each case.

    A failing case is explained whole in the message of its first failing item; the others refer to that.
    """
    what = (item.case.implementation.name, item.case.problem.dtype, item.quantity, item.name)
    reason = item.not_applicable()
    if reason:
        record(Record(*what, not_applicable=reason))
        pytest.skip(f"not applicable: {reason}")
    try:
        verdict = judge(item.case)
    except (MeshTooLarge, UncertifiedOracle) as error:
        pytest.fail(f"{item.name}: {error}", pytrace=False)

    finding = verdict.findings[item.rank, item.quantity]
    record(
        Record(
            *what,
            arithmetic=item.case.implementation.arithmetic[item.case.problem.dtype],
            units=finding.worst_units,
            regime=item.case.problem.regime,
            limit=finding.limit,
            limit_row=finding.limit_row,
            relative_error=finding.relative_error,
            passes=finding.passes,
        )
    )
    if finding.passes:
        return
    if item.case in _explained:
        pytest.fail(f"{item.name}: {headline(finding)}\n(explained at {_explained[item.case]})", pytrace=False)
    _explained[item.case] = item.name
    message = explain(item, verdict, rerun)
    record(failure_of(verdict, message))
    pytest.fail(message, pytrace=False)
