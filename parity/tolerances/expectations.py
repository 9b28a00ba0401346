"""What a foreign implementation is known to get wrong: recorded beside it, and red as soon as that changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from implementations.contract import Dtype
from oracles.gated_delta_rule import QUANTITIES
from parity.layouts import LAYOUTS
from parity.matrix import MESHES, Item
from parity.precision import DTYPES
from parity.regimes import REGIMES
from parity.shapes import SHAPES
from parity.tolerances.entries import Axes, BadTable, Entry, read_toml, require_disjoint, tables
from parity.tolerances.limits import limits
from parity.tolerances.selector import Selector, Value
from parity.verdict import Finding

Kind = Literal["deviation", "xfail", "not_applicable"]

ONE_AXIS = "one_axis"  # the layout that has no name

AXES: Axes = {
    "implementation": None,
    "dtype": DTYPES,
    "quantity": QUANTITIES,
    "regime": tuple(REGIMES),
    "shape": tuple(SHAPES),
    "ranks": MESHES,
    "layout": (ONE_AXIS, *LAYOUTS),
    "rank": tuple(range(max(MESHES))),
}


@dataclass(frozen=True)
class Expectation:
    """One row of a file; `where` names both. `units`: the bracket of a deviation, and None for the other kinds."""

    where: str
    kind: Kind
    selector: Selector
    units: tuple[float, float] | None
    reason: str
    issue: str

    @property
    def text(self) -> str:
        return f"{self.reason} ({self.issue})"

    def contradicted_by(self, finding: Finding) -> str | None:
        """Why a finding is not what is expected, or None where it is. `not_applicable` expects no finding."""
        if self.units is None:
            return f"it was expected to fail, and passes: take out {self.where}" if finding.passes else None
        low, high = self.units
        if finding.failure is None and low <= finding.worst_units <= high and not finding.passes:
            return None
        if (finding.failure is None and finding.worst_units < low) or finding.passes:
            return (
                f"it improved to {finding.worst_units:.3g} units, where {low:g} to {high:g} were expected: "
                f"tighten the bracket of {self.where}, or take it out"
            )
        return f"more than the {low:g} to {high:g} units that {self.where} expects"


def load(paths: Sequence[Path]) -> tuple[Expectation, ...]:
    """The rows of all files. Raises BadTable on anything that it does not know, and where two rows overlap."""
    rows = tuple(row for path in paths for row in _read(path))
    require_disjoint("--expect", {row.where: row.selector for row in rows})
    return rows


def expectation_of(item: Item, rows: Sequence[Expectation]) -> Expectation | None:
    """The one row that speaks of `item`."""
    return next((row for row in rows if row.selector.matches(point(item))), None)


def require_used(rows: Sequence[Expectation], items: Sequence[Item]) -> None:
    """Raise BadTable where a row matches none of `items`, the whole matrix, or none that is judged, or expects a
    deviation within the limit.
    """
    for row in rows:
        matched = [item for item in items if row.selector.matches(point(item))]
        if not matched:
            raise BadTable(f"{row.where}: no item of the matrix has {row.selector.text}")
        judged = [item for item in matched if item.not_applicable() is None]
        if not judged:
            why = "; ".join(sorted({str(item.not_applicable()) for item in matched}))
            raise BadTable(f"{row.where}: every item with {row.selector.text} is not applicable as it is: {why}")
        if row.units is None:
            continue
        limit, item = max((_limit(item), item.name) for item in judged)
        if row.units[0] <= limit:
            raise BadTable(
                f"{row.where}: units begin at {row.units[0]:g}, within the limit {limit:g} of {item}: "
                f"there is nothing to deviate from"
            )


def point(item: Item) -> dict[str, Value]:
    problem = item.case.problem
    return {
        "implementation": item.case.implementation.name,
        "dtype": problem.dtype,
        "quantity": item.quantity,
        "regime": problem.regime,
        "shape": problem.shape.name,
        "ranks": item.case.ranks,
        "layout": item.case.layout.name or ONE_AXIS,
        "rank": item.rank,
    }


def _limit(item: Item) -> float:
    """Of an item that is judged, without what holds on some platform alone."""
    problem, implementation = item.case.problem, item.case.implementation
    claimed = cast(Dtype, implementation.arithmetic[problem.dtype])
    where = {"dtype": problem.dtype, "quantity": item.quantity, "regime": problem.regime, "platform": None}
    return limits().resolve(claimed, implementation=implementation.name, **where).units  # type: ignore[arg-type]


def _read(path: Path) -> list[Expectation]:
    document = read_toml(path)
    Entry(str(path), "the file", document).has_keys(("expected",))
    return [_expectation(entry) for entry in tables(path, document, "expected")]


def _expectation(entry: Entry) -> Expectation:
    given = entry.values.get("kind")
    kind: Kind | None = next((kind for kind in get_args(Kind) if kind == given), None)
    if kind is None:
        entry.refuse(f"kind must be one of {', '.join(get_args(Kind))}; got {given!r}")
    entry.has_keys(("kind", "reason", "issue", *(("units",) if kind == "deviation" else ())), tuple(AXES))
    selector = entry.selector(AXES)
    if not selector.axes:
        entry.refuse(f"it speaks of everything: name at least one of {', '.join(AXES)}")
    units = _bracket(entry) if kind == "deviation" else None
    return Expectation(f"{entry.file}: {entry.row}", kind, selector, units, entry.text("reason"), entry.text("issue"))


def _bracket(entry: Entry) -> tuple[float, float]:
    given = entry.values["units"]
    if not isinstance(given, list) or len(given) != 2:
        entry.refuse(f"units must be a bracket [low, high]; got {given!r}")
    low, high = (entry.units("units", x) for x in given)
    if not low < high:
        entry.refuse(f"units must be a bracket [low, high] with low < high; got {given!r}")
    return low, high
