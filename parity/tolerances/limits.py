"""How many units a correct implementation may be off: the table `limits.toml`, and the one row that decides a point."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from implementations.contract import Dtype
from oracles.gated_delta_rule import QUANTITIES
from parity.precision import DTYPES, UNIT_ROUNDOFF, dtype_of
from parity.regimes import REGIMES
from parity.tolerances.entries import Axes, BadTable, Entry, read_toml, require_disjoint, tables
from parity.tolerances.platforms import PLATFORMS
from parity.tolerances.selector import Selector

LIMITS = Path(__file__).parent / "limits.toml"

# No row may say more: 64 units are a digit and a half in f64 and f32, 4 units of bf16 are a result that is 1/64 off.
CAP: dict[Dtype, float] = {"f64": 64.0, "f32": 64.0, "bf16": 4.0}

AXES: Axes = {
    "arithmetic": DTYPES,
    "implementation": None,
    "dtype": DTYPES,
    "quantity": QUANTITIES,
    "regime": tuple(REGIMES),
    "platform": PLATFORMS,
}
_GROUNDS = ("units", "reason", "evidence", "date")


@dataclass(frozen=True)
class Row:
    """`units`, for the points that `selector` matches, on these grounds."""

    name: str
    units: float
    selector: Selector
    reason: str
    evidence: str
    date: date


@dataclass(frozen=True)
class Table:
    """`base`: a row for each arithmetic; `overrides`: pairwise disjoint, in place of the base rows where they match."""

    base: Mapping[str, Row]
    overrides: tuple[Row, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.base.values(), *self.overrides)

    def resolve(
        self, claimed: Dtype, *, implementation: str, dtype: Dtype, quantity: str, regime: str, platform: str | None
    ) -> Row:
        """The one row that decides; as `resolve` below."""
        arithmetic = deciding(claimed, dtype_of(quantity, dtype))
        point = {"arithmetic": arithmetic, "implementation": implementation, "dtype": dtype}
        point |= {"quantity": quantity, "regime": regime}
        matching = [row for row in self.overrides if row.selector.matches({**point, "platform": platform})]
        return matching[0] if matching else self.base[arithmetic]

    def strictest(self, arithmetic: Dtype, *, dtype: Dtype, quantity: str, regime: str) -> float:
        """The smallest limit that any implementation meets there on any platform."""
        point = {"arithmetic": arithmetic, "dtype": dtype, "quantity": quantity, "regime": regime}
        there = Selector({axis: frozenset({value}) for axis, value in point.items()})
        overrides = [row.units for row in self.overrides if row.selector.overlaps(there)]
        return min([self.base[arithmetic].units, *overrides])


@cache
def limits() -> Table:
    """The table of this checkout. Raises BadTable."""
    return load(LIMITS)


def resolve(
    claimed: Dtype, *, implementation: str, dtype: Dtype, quantity: str, regime: str, platform: str | None
) -> Row:
    """The row that decides where `claimed` arithmetic is claimed for inputs of `dtype`: the override that matches, else
    the base row, of the coarser of `claimed` and the output's own dtype. `platform` is None where it is not recognised.
    """
    return limits().resolve(
        claimed, implementation=implementation, dtype=dtype, quantity=quantity, regime=regime, platform=platform
    )


def deciding(claimed: Dtype, output: Dtype) -> Dtype:
    """The coarser of the arithmetic that is claimed and the dtype of the output."""
    return max(claimed, output, key=UNIT_ROUNDOFF.__getitem__)


def load(path: Path) -> Table:
    """The table in `path`. Raises BadTable on anything that it does not know, and where two overrides overlap."""
    document = read_toml(path)
    Entry(str(path), "the file", document).has_keys(("base",), ("override",))
    base = _base(path, document["base"])
    overrides = tuple(_override(entry) for entry in tables(path, document, "override"))
    names = [row.name for row in overrides]
    twice = sorted({name for name in names if names.count(name) > 1 or name in DTYPES})
    if twice:
        raise BadTable(f"{path}: {', '.join(twice)}: every row needs a name of its own")
    require_disjoint(str(path), {row.name: row.selector for row in overrides})
    return Table(base, overrides)


def _base(path: Path, given: object) -> dict[str, Row]:
    if not isinstance(given, dict) or not all(isinstance(x, dict) for x in given.values()):
        raise BadTable(f"{path}: base must be tables [base.<arithmetic>], one for each of {', '.join(DTYPES)}")
    Entry(str(path), "base", given).has_keys(DTYPES)
    rows: dict[str, Row] = {}
    for arithmetic in DTYPES:
        entry = Entry(str(path), f"base.{arithmetic}", given[arithmetic])
        entry.has_keys(_GROUNDS)
        rows[arithmetic] = _row(entry, arithmetic, Selector({"arithmetic": frozenset({arithmetic})}))
    return rows


def _override(entry: Entry) -> Row:
    entry.has_keys(("name", "arithmetic", *_GROUNDS), [axis for axis in AXES if axis != "arithmetic"])
    selector = entry.selector(AXES)
    if selector.axes.keys() == {"arithmetic"}:
        entry.refuse(f"it overrides all of a base row; name one of {', '.join(AXES)}, or change the base row")
    return _row(entry, entry.name(), selector)


def _row(entry: Entry, name: str, selector: Selector) -> Row:
    units = entry.units("units", entry.values["units"])
    for arithmetic in selector.axes["arithmetic"]:
        cap = CAP[arithmetic]  # type: ignore[index]
        if units > cap:
            entry.refuse(f"units must be at most {cap:g} in {arithmetic}, the cap in {__name__}; got {units:g}")
    return Row(name, units, selector, entry.text("reason"), entry.text("evidence"), entry.date())
