"""The kill table: what each planted fault did to each quantity, in units."""

from collections.abc import Iterable
from dataclasses import dataclass

from oracles.gated_delta_rule import QUANTITIES
from parity.report.documents import Kill


@dataclass(frozen=True)
class KillGroup:
    """All that was asked about one fault."""

    fault: str
    cause: str
    kind: str
    kills: list[Kill]

    @property
    def survived(self) -> bool:
        return not all(kill.killed for kill in self.kills)


def by_fault(kills: Iterable[Kill]) -> list[KillGroup]:
    """One group a fault: survivors first, and then as they came."""
    groups: dict[str, list[Kill]] = {}
    for kill in kills:
        groups.setdefault(kill.fault, []).append(kill)
    found = [KillGroup(fault, same[0].cause, same[0].kind, same) for fault, same in groups.items()]
    return sorted(found, key=lambda group: not group.survived)


def quantities(kills: Iterable[Kill]) -> list[str]:
    """The columns: every quantity that was measured or had to fail, as the rule orders them."""
    named = {quantity for kill in kills for quantity in (*kill.units, kill.must_fail)}
    known = [quantity for quantity in QUANTITIES if quantity in named]
    return known + sorted(named - set(known))


def over(kill: Kill, quantity: str) -> bool:
    """Whether `quantity` is over its limit."""
    return quantity in kill.units and not kill.units[quantity] <= kill.limits[quantity]


def reached(kill: Kill) -> float | None:
    """How many times the limit the quantity that must fail is; None where it was not measured."""
    if kill.must_fail not in kill.units:
        return None
    return kill.units[kill.must_fail] / kill.limits[kill.must_fail]
