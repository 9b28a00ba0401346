"""Two ledgers of one platform compared: what moved, and what is worse than fresh draws alone make it."""

from collections.abc import Sequence
from dataclasses import dataclass

from parity.tolerances.headroom import LEAST, seen
from parity.tolerances.ledger import Key, Ledger, Observation
from parity.tolerances.limits import Table

# What fresh draws alone do. Two seeds against two others, in 756 ways of choosing them from nine, in the short shapes,
# whose blocks hold few elements: the max of an entry grew up to 4.0 times (twice in 99 of 100 entries), its rms 1.48.
MOST_GROWTH_OF_MAX = 4.0
MOST_GROWTH_OF_RMS = 1.5


@dataclass(frozen=True)
class Change:
    """One entry before and after, None where it is not; `worse` says why it is, and is empty where it is not."""

    key: Key
    max_units: tuple[float | None, float | None]
    rms_units: tuple[float | None, float | None]
    worse: str


def changes(before: Ledger | None, after: Ledger) -> list[Change]:
    """Every entry of either ledger. Without one before, nothing is worse than it."""
    old = before.observed if before else {}
    found = []
    for key in sorted(old.keys() | after.observed.keys()):
        was, now = old.get(key), after.observed.get(key)
        found.append(
            Change(
                key,
                (was.max_units if was else None, now.max_units if now else None),
                (was.rms_units if was else None, now.rms_units if now else None),
                "it is gone" if now is None else "" if was is None else _growth(was, now),
            )
        )
    return found


def _growth(was: Observation, now: Observation) -> str:
    grown = []
    for name, old, new, most in (
        ("max", was.max_units, now.max_units, MOST_GROWTH_OF_MAX),
        ("rms", was.rms_units, now.rms_units, MOST_GROWTH_OF_RMS),
    ):
        if not new <= old * most:
            grown.append(f"{name} grew more than {most:g} times")
    return ", ".join(grown)


def near_their_limit(table: Table, platform: str, ledger: Ledger) -> list[str]:
    """What is less than `LEAST` times below its limit."""
    return [
        f"{'-'.join(found.key)} in {found.regime}: {found.units:.3g} units are less than {LEAST:g} times below "
        f"the limit {found.row.units:g} of row {found.row.name}"
        for found in seen(table, platform, ledger)
        if not found.headroom >= LEAST
    ]


def as_text(found: Sequence[Change]) -> str:
    """A table for a terminal: max and rms units before and after, and the ratio of each."""
    header = ("entry", "max before", "after", "ratio", "rms before", "after", "ratio", "")
    lines: list[tuple[str, ...]] = [header]
    for change in found:
        numbers = [x for pair in (change.max_units, change.rms_units) for x in (*map(_number, pair), _ratio(*pair))]
        lines.append(("-".join(change.key), *numbers, f"WORSE: {change.worse}" if change.worse else ""))
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            x.rjust(w) if 0 < i < 7 else x.ljust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}"


def _ratio(before: float | None, after: float | None) -> str:
    return f"{after / before:.2f}" if before and after is not None else "-"
