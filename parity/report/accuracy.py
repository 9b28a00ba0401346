"""The accuracy table: per implementation, dtype and quantity the worst units of a run, and where they occurred."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from oracles.gated_delta_net import QUANTITIES as OF_LAYER
from oracles.gated_delta_rule import QUANTITIES as OF_RULE
from parity.precision import DTYPES

COLUMNS = (
    "implementation",
    "dtype",
    "quantity",
    "units",
    "limit",
    "limit row",
    "rms",
    "relative error",
    "judged",
    "failed",
    "expected",
    "n/a",
    "worst case",
)


@dataclass(frozen=True)
class Record:
    """What one item of the gate found. `not_applicable` and the numbers exclude each other.

    `passes`: whether the item is green; `expected`: whether it is so because a deviation from the limit was expected.
    """

    implementation: str
    dtype: str
    quantity: str
    item: str
    arithmetic: str | None = None
    not_applicable: str | None = None
    units: float | None = None
    limit: float | None = None
    relative_error: float | None = None
    passes: bool | None = None
    regime: str | None = None
    limit_row: str | None = None
    expected: bool = False


@dataclass(frozen=True)
class Worst:
    """The worst units of a regime, and where."""

    units: float
    item: str


@dataclass(frozen=True)
class Row:
    """One line of the table; `arithmetic` is what was claimed. The numbers are None where nothing was applicable.

    `units`, `limit` and `limit_row` are those of `worst_item`, which is nearest to its limit; `rms_units` is over all
    that was judged.
    """

    implementation: str
    dtype: str
    arithmetic: str | None
    quantity: str
    units: float | None
    rms_units: float | None
    limit: float | None
    limit_row: str | None
    relative_error: float | None
    judged: int
    failed: int
    expected: int
    not_applicable: int
    worst_item: str | None
    by_regime: dict[str, Worst]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.implementation, self.dtype, self.quantity

    @property
    def share(self) -> float | None:
        """Units as a share of the limit."""
        return None if self.units is None or not self.limit else self.units / self.limit


def table(records: Iterable[Record]) -> list[Row]:
    """The rows, by implementation and then as dtypes and quantities are declared, whatever the order of `records`."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in sorted(records, key=lambda r: r.item):
        groups.setdefault((record.implementation, record.dtype, record.quantity), []).append(record)
    names = (*DTYPES, *OF_RULE, *OF_LAYER)
    return [_row(*key, groups[key]) for key in sorted(groups, key=lambda k: (k[0], *map(names.index, k[1:])))]


def _row(implementation: str, dtype: str, quantity: str, records: list[Record]) -> Row:
    judged = [r for r in records if r.units is not None]
    # The worst is that nearest to its limit: in one row limits may differ.
    worst = max(judged, key=lambda r: _share(r), default=None)
    return Row(
        implementation,
        dtype,
        next((r.arithmetic for r in records if r.arithmetic), None),
        quantity,
        units=worst.units if worst else None,
        rms_units=_rms([r.units for r in judged if r.units is not None]) if judged else None,
        limit=worst.limit if worst else None,
        limit_row=worst.limit_row if worst else None,
        relative_error=worst.relative_error if worst else None,
        judged=len(judged),
        failed=sum(not r.passes for r in judged),
        expected=sum(r.expected for r in judged),
        not_applicable=len(records) - len(judged),
        worst_item=worst.item if worst else None,
        by_regime=_by_regime(judged),
    )


def _by_regime(judged: list[Record]) -> dict[str, Worst]:
    worst: dict[str, Worst] = {}
    for record in judged:
        assert record.regime is not None
        assert record.units is not None
        if record.regime not in worst or record.units > worst[record.regime].units:
            worst[record.regime] = Worst(record.units, record.item)
    return dict(sorted(worst.items()))


def _rms(units: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in units) / len(units)) if math.isfinite(sum(units)) else math.inf


def _share(record: Record) -> float:
    assert record.units is not None
    assert record.limit is not None
    return record.units / record.limit


def as_text(rows: list[Row]) -> str:
    """Aligned columns for a terminal."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    left = {COLUMNS.index(name) for name in ("implementation", "dtype", "quantity", "limit row", "worst case")}
    return "\n".join(
        "  ".join(
            x.ljust(w) if i in left else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def as_markdown(rows: list[Row], title: str) -> str:
    """A section with the table."""
    lines = [f"## {title}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [
        f"| {' | '.join(f'`{x}`' if i == len(COLUMNS) - 1 and x else x for i, x in enumerate(_cells(row)))} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def as_json(rows: list[Row], title: str, environment: Mapping[str, object]) -> str:
    """The rows with full precision; an infinite number is the string "inf", for JSON has none."""
    document = {"title": title, "environment": dict(environment), "rows": [asdict(row) for row in rows]}
    return json.dumps(_finite(document), indent=1, allow_nan=False) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.implementation,
        row.dtype if row.arithmetic in (None, row.dtype) else f"{row.dtype} in {row.arithmetic}",
        row.quantity,
        _number(row.units, ".3g"),
        _number(row.limit, "g"),
        row.limit_row or "-",
        _number(row.rms_units, ".3g"),
        _number(row.relative_error, ".1e"),
        str(row.judged),
        f"{row.failed} FAILED" if row.failed else "0",
        str(row.expected),
        str(row.not_applicable),
        row.worst_item or "",
    )


def _number(x: float | None, form: str) -> str:
    return "-" if x is None else f"{x:{form}}"


def _finite(x: object) -> object:
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_finite(value) for value in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x
