"""One test of the gate: ask, measure, judge, and explain once."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from parity.explain import explain, headline
from parity.matrix import Case, Item
from parity.meshes import MeshTooLarge
from parity.report.accuracy import Record
from parity.report.failures import Failure
from parity.report.from_verdict import failure_of
from parity.tolerances.expectations import Expectation
from parity.tpu.applicable import not_applicable_here
from parity.truth import UncertifiedOracle
from parity.verdict import Verdict, judge

Recorder = Callable[[Record | Failure], None]

_explained: dict[Case, str] = {}


def check(item: Item, record: Recorder, rerun: str, expectation: Expectation | None = None) -> None:
    """Pass, fail with the reason, or skip as not applicable; `record` is told in each case.

    A failing case is explained whole in the message of its first failing item; the others refer to that. What is
    expected of a foreign implementation takes the place of the limit, and an item that is not so is red.
    """
    what = (item.case.implementation.name, item.case.problem.dtype, item.quantity, item.name)
    reason = item.not_applicable() or not_applicable_here(item.case)
    if not reason and expectation and expectation.kind == "not_applicable":
        reason = expectation.text
    if reason:
        record(Record(*what, not_applicable=reason))
        pytest.skip(f"not applicable: {reason}")
    try:
        verdict = judge(item.case)
    except (MeshTooLarge, UncertifiedOracle) as error:
        pytest.fail(f"{item.name}: {error}", pytrace=False)

    finding = verdict.findings[item.rank, item.quantity]
    contradiction = expectation.contradicted_by(finding) if expectation else None
    passes = contradiction is None if expectation else finding.passes
    record(
        Record(
            *what,
            arithmetic=item.case.implementation.arithmetic[item.case.problem.dtype],
            units=finding.worst_units,
            regime=item.case.problem.regime,
            limit=finding.limit,
            limit_row=finding.limit_row,
            relative_error=finding.relative_error,
            passes=passes,
            expected=passes and expectation is not None,
        )
    )
    if passes:
        if expectation and expectation.kind == "xfail":
            pytest.xfail(expectation.text)
        return
    _fail(item, verdict, contradiction, record, rerun)


def _fail(item: Item, verdict: Verdict, contradiction: str | None, record: Recorder, rerun: str) -> NoReturn:
    finding = verdict.findings[item.rank, item.quantity]
    if finding.passes:
        pytest.fail(f"{item.name}: {contradiction}\n\nrun it again\n    {rerun}", pytrace=False)
    if item.case in _explained:
        message = f"{item.name}: {headline(finding)}\n(explained at {_explained[item.case]})"
    else:
        _explained[item.case] = item.name
        message = explain(item, verdict, rerun)
        record(failure_of(verdict, message))
    first, newline, rest = message.partition("\n")
    pytest.fail(first + (f"\n{contradiction}" if contradiction else "") + newline + rest, pytrace=False)
