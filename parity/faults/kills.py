"""The kill table: fault x regime x quantity, in units, for people and for machines."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from oracles.gated_delta_rule import QUANTITIES

EVERY_QUANTITY = "every quantity"  # that must fail

COLUMNS = ("fault", "in", "dtype", "regime", "ranks", *QUANTITIES, "")


@dataclass(frozen=True)
class Kill:
    """What the suite saw of one fault in one regime. `units`: the worst over all ranks, by quantity.

    `implementation`: whose the fault was planted in; empty for the one that it is written for. `must_fail`: a quantity
    or EVERY_QUANTITY, which had to be `margin` times its limit. `complaints`: why it is not killed. Raises ValueError
    where a quantity has units and no limit.
    """

    fault: str
    cause: str
    kind: str
    implementation: str
    dtype: str
    regime: str
    ranks: int
    must_fail: str
    margin: float
    units: dict[str, float]
    limits: dict[str, float]
    killed: bool
    not_applicable: str | None = None
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        without = [quantity for quantity in self.units if not self.limits.get(quantity, 0.0) > 0]
        if without:
            raise ValueError(f"{self.fault} has no limit for {', '.join(without)}")

    @property
    def survived(self) -> bool:
        return not self.killed and self.not_applicable is None

    @property
    def demanded(self) -> list[str]:
        """The quantities that had to fail."""
        return list(self.units) if self.must_fail == EVERY_QUANTITY else [self.must_fail]


def as_text(kills: Iterable[Kill]) -> str:
    """Aligned columns. A wrong quantity is marked *, the one that had to be wrong stands in brackets."""
    lines = [COLUMNS, *(_cells(kill, "[{}]", "{}*") for kill in _in_order(kills))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    left = {0, 1, 2, 3, len(COLUMNS) - 1}
    return "\n".join(
        "  ".join(
            x.ljust(w) if i in left else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_markdown(kills: Iterable[Kill], title: str) -> str:
    """A section with the table: a wrong quantity in italics, the one that had to be wrong in bold."""
    head = [f"## {title}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    rows = [f"| {' | '.join(_cells(kill, '**{}**', '*{}*'))} |" for kill in _in_order(kills)]
    return "\n".join([*head, *rows]) + "\n"


def as_json(kills: Iterable[Kill], environment: Mapping[str, object]) -> str:
    """Full precision; an infinite number is the string "inf", for JSON has none."""
    rows = [asdict(kill) for kill in _in_order(kills)]
    for row in rows:
        row["units"] = {q: x if math.isfinite(x) else "inf" for q, x in row["units"].items()}
    return json.dumps({"environment": dict(environment), "kills": rows}, indent=1, allow_nan=False) + "\n"


def _in_order(kills: Iterable[Kill]) -> list[Kill]:
    kinds = ("hand_over", "chunk", "rule", "backward", "precision", "interface", "padding", "packing", "kernel", "null")
    return sorted(kills, key=lambda kill: (kill.implementation, kinds.index(kill.kind), kill.fault, kill.regime))


def _cells(kill: Kill, demanded: str, wrong: str) -> tuple[str, ...]:
    def cell(quantity: str) -> str:
        if quantity not in kill.units:
            return "-"
        units = kill.units[quantity]
        text = f"{units:.1e}" if units >= 1000 else f"{units:.3g}"
        if kill.must_fail in (quantity, EVERY_QUANTITY):
            return demanded.format(text)
        return text if units <= kill.limits[quantity] else wrong.format(text)

    survives = f"SURVIVES: {'; '.join(kill.complaints)}"
    verdict = f"not applicable: {kill.not_applicable}" if kill.not_applicable else survives if kill.survived else ""
    quantities = tuple(cell(quantity) for quantity in QUANTITIES)
    return kill.fault, kill.implementation, kill.dtype, kill.regime, str(kill.ranks), *quantities, verdict
