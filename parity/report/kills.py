"""The kill table: what each planted fault did to each quantity, in units."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oracles.gated_delta_rule import QUANTITIES
from parity.faults.kills import Kill


@dataclass(frozen=True)
class KillGroup:
    """All that was asked about one fault, in the implementation that it is written for or around another."""

    fault: str
    around: str
    cause: str
    kind: str
    kills: list[Kill]

    @property
    def survived(self) -> bool:
        return any(kill.survived for kill in self.kills)


def by_fault(kills: Iterable[Kill]) -> list[KillGroup]:
    """One group a fault and implementation: survivors first, and then as they came."""
    groups: dict[tuple[str, str], list[Kill]] = {}
    for kill in kills:
        groups.setdefault((kill.fault, kill.implementation), []).append(kill)
    found = [KillGroup(*names, same[0].cause, same[0].kind, same) for names, same in groups.items()]
    return sorted(found, key=lambda group: not group.survived)


def tally(kills: Sequence[Kill]) -> str:
    """`63 faults on 126 problems: 125 killed, 1 SURVIVED, 0 not applicable`."""
    survived = sum(kill.survived for kill in kills)
    left_out = sum(kill.not_applicable is not None for kill in kills)
    killed = len(kills) - survived - left_out
    return (
        f"{len({kill.fault for kill in kills})} faults on {len(kills)} problems: {killed} killed, "
        f"{survived} {'SURVIVED' if survived else 'survived'}, {left_out} not applicable"
    )


def quantities(kills: Iterable[Kill]) -> list[str]:
    """The columns: every quantity that was measured or had to fail, as the rule orders them."""
    named = {quantity for kill in kills for quantity in (*kill.units, *kill.demanded)}
    known = [quantity for quantity in QUANTITIES if quantity in named]
    return known + sorted(named - set(known))


def over(kill: Kill, quantity: str) -> bool:
    """Whether `quantity` is over its limit."""
    return quantity in kill.units and not kill.units[quantity] <= kill.limits[quantity]


def reached(kill: Kill) -> float | None:
    """How many times its limit the least of what had to fail is; None where it was not measured."""
    found = [kill.units[quantity] / kill.limits[quantity] for quantity in kill.demanded if quantity in kill.units]
    return min(found, default=None)


def result(kill: Kill) -> str:
    """In one word, or with the reason why it is not what was wanted."""
    if kill.not_applicable is not None:
        return f"not applicable: {kill.not_applicable}"
    return "killed" if kill.killed else ": ".join(["SURVIVED", *kill.complaints])
