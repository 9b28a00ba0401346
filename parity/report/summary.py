"""The first lines of a report: how much was judged, how much failed, and what is nearest to its limit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parity.report.accuracy import Row
from parity.report.documents import Run
from parity.report.numbers import number, percent


@dataclass(frozen=True)
class Summary:
    """`nearest`: the judged row with the largest share of its limit."""

    judged: int
    failed: int
    expected: int
    not_applicable: int
    nearest: Row | None


def summary(rows: Iterable[Row]) -> Summary:
    rows = list(rows)
    return Summary(
        judged=sum(row.judged for row in rows),
        failed=sum(row.failed for row in rows),
        expected=sum(row.expected for row in rows),
        not_applicable=sum(row.not_applicable for row in rows),
        nearest=max((row for row in rows if row.share is not None), key=lambda row: row.share or 0.0, default=None),
    )


def headroom(row: Row) -> str:
    """`Nearest to its limit: 12.3 of 32 units (38%), in dk of chunked, f64`."""
    share = row.share or 0.0
    where = "Nearest to its limit" if share <= 1 else "Furthest over its limit"
    units = f"{number(row.units)} of {number(row.limit)} units ({percent(share)})"
    return f"{where}: {units}, in {row.quantity} of {row.implementation}, {claim(row)}"


def claim(row: Row) -> str:
    """The dtype, and the arithmetic where another is claimed."""
    return row.dtype if row.arithmetic in (None, row.dtype) else f"{row.dtype} in {row.arithmetic}"


def flat(environment: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """What a run depends on, one name a value."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def mismatches(run: Run) -> list[str]:
    """Which files of one directory are known to be, or may be, of another run than accuracy.json is."""
    if run.accuracy is None:
        return []
    ours = flat(run.accuracy.environment)
    found = []
    documents = (run.failures, run.kills, run.exchanges)
    for name, document in zip(("failures.json", "kills.json", "exchanged.json"), documents, strict=True):
        if document is None or not ours:
            continue
        theirs = flat(document.environment)
        differ = sorted(key for key in ours | theirs if ours.get(key) != theirs.get(key))
        if not theirs:
            found.append(f"{name} does not say which code and machine it is of")
        elif differ:
            found.append(f"{name} is of another run than accuracy.json: they differ in {', '.join(differ)}")
    return found
