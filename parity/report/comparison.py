"""Two runs side by side: each implementation, dtype and quantity before and after."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from parity.report.accuracy import Row
from parity.report.documents import Run

# Units that differ by less than this share are called the same.
SAME = 0.01


class Change(IntEnum):
    """What became of a row, what wants attention most first."""

    NOW_FAILS = 0
    NO_LONGER_JUDGED = 1
    ONLY_BEFORE = 2
    LARGER_LIMIT = 3
    WORSE = 4
    ONLY_AFTER = 5
    NEWLY_JUDGED = 6
    BETTER = 7
    NOW_PASSES = 8
    SAME = 9

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def direction(self) -> str:
        """`worse`, `better` or `neutral`."""
        if self <= Change.WORSE:
            return "worse"
        return "better" if self in (Change.BETTER, Change.NOW_PASSES) else "neutral"

    @property
    def mark(self) -> str:
        return {"worse": "▲", "better": "▼", "neutral": "="}[self.direction] if self != Change.ONLY_AFTER else "+"


@dataclass(frozen=True)
class Pair:
    """One row of both runs; at least one of the two is there."""

    before: Row | None
    after: Row | None

    @property
    def key(self) -> tuple[str, str, str]:
        row = self.after or self.before
        assert row is not None
        return row.key

    @property
    def ratio(self) -> float | None:
        """Units after as a multiple of units before; None where there is no such number."""
        before, after = _units(self.before), _units(self.after)
        if before is None or after is None:
            return None
        if before == after:
            return 1.0
        return after / before if 0 < before < math.inf else None

    @property
    def limits_differ(self) -> bool:
        limits = [row.limit for row in (self.before, self.after) if row and row.limit is not None]
        return len(set(limits)) > 1

    @property
    def change(self) -> Change:
        if self.after is None:
            return Change.ONLY_BEFORE
        if self.before is None:
            return Change.ONLY_AFTER
        if self.before.units is None or self.after.units is None:
            return _judged(self.before, self.after)
        if bool(self.after.failed) != bool(self.before.failed):
            return Change.NOW_FAILS if self.after.failed else Change.NOW_PASSES
        if (self.after.limit or 0.0) > (self.before.limit or 0.0):
            return Change.LARGER_LIMIT
        if math.isclose(self.before.units, self.after.units, rel_tol=SAME):
            return Change.SAME
        return Change.WORSE if self.after.units > self.before.units else Change.BETTER


def compare(before: Iterable[Row], after: Iterable[Row]) -> list[Pair]:
    """Every row of either run once: what wants attention first, and within that the largest ratio."""
    old, new = ({row.key: row for row in rows} for rows in (before, after))
    pairs = [Pair(old.get(key), new.get(key)) for key in old | new]
    return sorted(pairs, key=lambda pair: (pair.change, -(pair.ratio or 0.0)))


def pairs(run: Run, against: Run | None) -> list[Pair] | None:
    """`run` compared with `against`; None where there is nothing to compare."""
    if against is None or run.accuracy is None or against.accuracy is None:
        return None
    return compare(against.accuracy.rows, run.accuracy.rows)


def counts(pairs: Iterable[Pair]) -> list[tuple[Change, int]]:
    """How often each change occurred, what wants attention most first."""
    changes = [pair.change for pair in pairs]
    return [(change, changes.count(change)) for change in Change if change in changes]


def _judged(before: Row, after: Row) -> Change:
    if before.units is None:
        return Change.SAME if after.units is None else Change.NEWLY_JUDGED
    return Change.NO_LONGER_JUDGED


def _units(row: Row | None) -> float | None:
    return row.units if row else None
