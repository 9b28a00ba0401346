"""How far the limits are above what was seen: near enough to catch, far enough not to cry."""

from collections.abc import Mapping
from dataclasses import dataclass

from parity.tolerances.ledger import Key, Ledger
from parity.tolerances.limits import Row, Table

# limit / observed, the observed being the most that any item came to. Below 2 the next draw may be red and nobody's
# fault; above 8 a mistake of three bits passes.
LEAST, MOST = 2.0, 8.0


@dataclass(frozen=True)
class Seen:
    """The most `units` of one regime of one entry of a ledger, and the row that decides there."""

    row: Row
    key: Key
    regime: str
    units: float

    @property
    def headroom(self) -> float:
        return self.row.units / self.units if self.units else float("inf")


def seen(table: Table, platform: str, ledger: Ledger) -> list[Seen]:
    """Everything in the ledger of `platform`, each with the row of `table` that decides it."""
    found = []
    for (implementation, dtype, quantity), observation in ledger.observed.items():
        for regime, units in observation.by_regime.items():
            row = table.resolve(
                observation.arithmetic,
                implementation=implementation,
                dtype=dtype,  # type: ignore[arg-type]
                quantity=quantity,
                regime=regime,
                platform=platform,
            )
            found.append(Seen(row, (implementation, dtype, quantity), regime, units))
    return found


def least_headroom(table: Table, ledgers: Mapping[str, Ledger]) -> dict[str, Seen]:
    """By name of the row: what came nearest to it on any platform. A row that decides nothing is not there."""
    nearest: dict[str, Seen] = {}
    for platform, ledger in ledgers.items():
        for found in seen(table, platform, ledger):
            if found.row.name not in nearest or found.units > nearest[found.row.name].units:
                nearest[found.row.name] = found
    return nearest
