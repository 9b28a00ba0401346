"""Everything in which one revision's facts are looser than another's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from parity.precision import UNIT_ROUNDOFF
from parity.tolerances.facts import ANY_OTHER
from parity.tolerances.selector import Selector, Value

Facts = Mapping[str, Any]

# Where the platform and the libraries are the same so is every digit; this is what JSON may lose.
NOISE = 1e-9
MOST_SHOWN = 20


@dataclass(frozen=True)
class Loosening:
    """`what` became looser: it was `before` and is `after`."""

    kind: str
    what: str
    before: str
    after: str


def loosenings(before: Facts, after: Facts) -> list[Loosening]:
    """All of them, those of a kind together."""
    kinds = (_constants, _limits, _claims, _deleted, _faults, _expected, _probes)
    return [found for kind in kinds for found in kind(before, after)]


def few(found: Sequence[Loosening]) -> list[Loosening]:
    """The first of each kind, and how many more there are: one change of the measure loosens hundreds of probes."""
    kinds = {x.kind: [y for y in found if y.kind == x.kind] for x in found}
    shown = []
    for kind, those in kinds.items():
        more = len(those) - MOST_SHOWN
        shown += those[:MOST_SHOWN] + ([Loosening(kind, f"and {more} more", "", "")] if more > 0 else [])
    return shown


def _constants(before: Facts, after: Facts) -> Iterator[Loosening]:
    for direction, sign in (("larger is looser", 1), ("smaller is looser", -1)):
        for name, was in before[direction].items():
            now = after[direction].get(name)
            if now is None or sign * now > sign * was:
                yield Loosening("constant", name, f"{was:g}", "gone" if now is None else f"{now:g}")


def _limits(before: Facts, after: Facts) -> Iterator[Loosening]:
    """By the pair of rows that decide, with the number of points and one of them."""
    was, now = (_Limits(revision["limits"]) for revision in (before, after))
    looser: dict[tuple[str, float, str, float], list[str]] = {}
    for point in {**was.units_and_row, **now.units_and_row}:
        (old, old_row), (new, new_row) = was.at(point), now.at(point)
        if new > old:
            looser.setdefault((old_row, old, new_row, new), []).append(point)
    for (old_row, old, new_row, new), points in looser.items():
        implementation, claimed, dtype, quantity, regime, platform = points[0].split(" ")
        example = f"{implementation} {quantity} in {regime}, {dtype} in {claimed}, on {platform}"
        what = f"{len(points)} points, such as {example}"
        yield Loosening("limit", what, f"{old:g} by row {old_row}", f"{new:g} by row {new_row}")


class _Limits:
    """The limits of one revision; a value that it does not know is any other to it."""

    def __init__(self, units_and_row: Mapping[str, Sequence[Any]]) -> None:
        self.units_and_row = units_and_row
        self._known = [set(values) for values in zip(*(point.split(" ") for point in units_and_row), strict=True)]

    def at(self, point: str) -> tuple[float, str]:
        values = zip(point.split(" "), self._known, strict=True)
        units, row = self.units_and_row[" ".join(v if v in known else ANY_OTHER for v, known in values)]
        return units, row


def _claims(before: Facts, after: Facts) -> Iterator[Loosening]:
    for name, was in before["claims"].items():
        now = after["claims"].get(name)
        if now is None:
            yield Loosening("claim", name, was, "gone")
        elif UNIT_ROUNDOFF[now] > UNIT_ROUNDOFF[was]:
            yield Loosening("claim", name, was, now)


def _deleted(before: Facts, after: Facts) -> Iterator[Loosening]:
    for key, kind in (("items", "judged item"), ("collected", "test of the gate"), ("null models", "null model")):
        for name in sorted(set(before[key]) - set(after[key])):
            yield Loosening(kind, name, "there", "gone")


def _faults(before: Facts, after: Facts) -> Iterator[Loosening]:
    for name, was in before["faults"].items():
        now = after["faults"].get(name)
        if now is None:
            yield Loosening("fault", name, "there", "gone")
            continue
        if now["margin"] < was["margin"]:
            yield Loosening("fault", f"{name}: margin", f"{was['margin']:g}", f"{now['margin']:g}")
        for key in ("regimes", "right"):
            lost = sorted(set(was[key]) - set(now[key]))
            if lost:
                yield Loosening("fault", f"{name}: {key}", ", ".join(lost), "gone")
        for key in ("quantity", "dtype", "ranks"):
            if now[key] != was[key]:
                yield Loosening("fault", f"{name}: {key}", str(was[key]), str(now[key]))


def _expected(before: Facts, after: Facts) -> Iterator[Loosening]:
    """What is expected at every point that a row of either revision tells from others, where it forgives more."""
    rows = [*before["expected"], *after["expected"]]
    axes = sorted({axis for row in rows for axis in row["axes"]})
    values = [[*sorted({x for row in rows for x in row["axes"].get(axis, ())}, key=str), ANY_OTHER] for axis in axes]
    seen = set()
    for point in product(*values):
        where = dict(zip(axes, point, strict=True))
        was, now = (_weakest(revision["expected"], where) for revision in (before, after))
        if _forgives(now) > _forgives(was) or _begins_lower(now, was):
            change = _words(was), _words(now)
            if change not in seen:
                seen.add(change)
                yield Loosening("expectation", ", ".join(f"{a} = {x}" for a, x in where.items()), *change)


def _weakest(rows: Sequence[Mapping[str, Any]], point: Mapping[str, Value]) -> Mapping[str, Any] | None:
    matching = [row for row in rows if Selector({a: frozenset(x) for a, x in row["axes"].items()}).matches(point)]
    return max(matching, key=_forgives, default=None)


def _forgives(row: Mapping[str, Any] | None) -> tuple[int, float]:
    if row is None:
        return 0, 0.0
    return ("", "deviation", "xfail", "not_applicable").index(row["kind"]), row["units"][1] if row["units"] else 0.0


def _begins_lower(row: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether both are brackets and that of `row` begins below: what improved that far is not seen."""
    return bool(row and other and row["units"] and other["units"] and row["units"][0] < other["units"][0])


def _words(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "the limit"
    bracket = " of {:g} to {:g} units".format(*row["units"]) if row["units"] else ""
    return f"{row['kind']}{bracket} by {row['where']}"


def _probes(before: Facts, after: Facts) -> Iterator[Loosening]:
    """A known error that takes up less of its limit, or passes where it did not."""
    now = {probe["name"]: probe for probe in after["probes"]}
    for was in before["probes"]:
        found = now.get(was["name"])
        if found is None:
            yield Loosening("measure", was["name"], "asked", "gone")
        elif found["problem"] != was["problem"]:
            yield Loosening("measure", was["name"], f"values {was['problem']}", f"{found['problem']}: not comparable")
        elif found["passes"] and not was["passes"]:
            yield Loosening("measure", was["name"], "it fails", "it passes")
        else:
            yield from _less_of_the_limit(was, found)


def _less_of_the_limit(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Loosening]:
    if len(was["shares"]) != len(now["shares"]):
        blocks = len(was["shares"]), len(now["shares"])
        if blocks[1] < blocks[0]:
            yield Loosening("measure", was["name"], f"{blocks[0]} rows, blocks and heads", str(blocks[1]))
        return
    pairs = [(a, b) for a, b in zip(was["shares"], now["shares"], strict=True) if b < a * (1 - NOISE)]
    if pairs:
        old, new = max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else float("inf"))
        yield Loosening("measure", was["name"], f"{old:.4g} limits", f"{new:.4g} limits")
