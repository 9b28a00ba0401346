"""The report in Markdown: the tables, the messages, and for each failing quantity its worst units on each rank."""

import re
from collections.abc import Iterable, Sequence

from parity.report import kills
from parity.report.accuracy import Row
from parity.report.comparison import Pair, counts, pairs
from parity.report.documents import Accuracy, Exchanges, Failures, Kills, Run
from parity.report.failures import MOST_DRAWN, Failure, first_few, worst_first
from parity.report.numbers import exact, number, percent, times
from parity.report.summary import claim, flat, headroom, mismatches, summary


def markdown(run: Run, against: Run | None = None) -> str:
    """The page of `run`, compared with `against` where that is given."""
    sections = [
        "# Parity report",
        _provenance(run, against),
        *(f"Note: {escape(note)}." for note in mismatches(run)),
        _comparison(run, against),
        _accuracy(run.accuracy),
        _failures(run.failures),
        _exchanges(run.exchanges),
        _kills(run.kills),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def escape(text: str) -> str:
    """Text that is no markup, on one line and within one cell."""
    return re.sub(r"([\\`*_{}\[\]<>&#|~])", r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are escaped here."""
    lines = [header, *rows]
    written = [f"| {' | '.join(escape(cell) for cell in line)} |" for line in lines]
    return "\n".join([written[0], f"|{'---|' * len(header)}", *written[1:]])


def fenced(text: str) -> str:
    """A block of code, whatever backticks `text` has."""
    fence = "`" * (1 + max([2, *(len(run) for run in re.findall("`+", text))]))
    return f"{fence}text\n{text}\n{fence}"


def _provenance(run: Run, against: Run | None) -> str:
    ours = flat(run.accuracy.environment) if run.accuracy else {}
    if against is None:
        return table(("environment", ""), ours.items()) if ours else ""
    theirs = flat(against.accuracy.environment) if against.accuracy else {}
    rows = [
        (name, theirs.get(name, "-"), ours.get(name, "-"), "" if theirs.get(name) == ours.get(name) else "differs")
        for name in theirs | ours
    ]
    return table(("environment", f"before: {against.directory}", f"after: {run.directory}", ""), rows)


def _comparison(run: Run, against: Run | None) -> str:
    if against is None:
        return ""
    found = pairs(run, against)
    if found is None:
        return "## Compared\n\nThere is nothing to compare: accuracy.json is absent on one side."
    header = ("implementation", "dtype", "quantity", "before", "after", "ratio", "change", "limit", "failed")
    count = ", ".join(f"{change.text}: {n}" for change, n in counts(found))
    return f"## Compared\n\n{count}.\n\n{table(header, (_pair(pair) for pair in found))}"


def _pair(pair: Pair) -> tuple[str, ...]:
    def both(values: list[str]) -> str:
        return values[0] if values[0] == values[1] else " → ".join(values)

    sides = (pair.before, pair.after)
    units = [number(side.units if side else None) for side in sides]
    limits = [exact(side.limit if side else None) for side in sides]
    failed = [str(side.failed) if side else "-" for side in sides]
    ratio = "-" if pair.ratio is None else times(pair.ratio)
    return *pair.key, *units, ratio, f"{pair.change.mark} {pair.change.text}", both(limits), both(failed)


def _accuracy(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return "## Accuracy\n\naccuracy.json is absent: no gate was run here."
    found = summary(accuracy.rows)
    line = f"{found.judged} judged, {found.failed} failed, {found.expected} expected deviations, "
    line += f"{found.not_applicable} not applicable."
    if found.nearest:
        line += f" {headroom(found.nearest)}."
    header = ["implementation", "dtype", "quantity", "units", "limit", "limit row", "share of the limit"]
    header += ["relative error", "judged", "failed", "expected", "n/a", "worst case"]
    return f"## Accuracy\n\n{escape(line)}\n\n{table(header, (_row(row) for row in accuracy.rows))}"


def _row(row: Row) -> tuple[str, ...]:
    return (
        row.implementation,
        claim(row),
        row.quantity,
        number(row.units),
        exact(row.limit),
        row.limit_row or "-",
        "-" if row.share is None else percent(row.share),
        "-" if row.relative_error is None else f"{row.relative_error:.1e}",
        str(row.judged),
        f"{row.failed} FAILED" if row.failed else "0",
        str(row.expected),
        str(row.not_applicable),
        row.worst_item or "",
    )


def _failures(failures: Failures | None) -> str:
    if failures is None:
        return "## Failures\n\nfailures.json is absent."
    lost = [f"{len(failures.unmeasured)} failing items were not measured: {first_few(failures.unmeasured)}."]
    lost *= bool(failures.unmeasured)
    if not failures.failures:
        return "\n\n".join(["## Failures", *(lost or ["No case failed."])])
    cases = worst_first(failures.failures)
    parts = ["## Failures", *lost, f"{len(cases)} failing cases, worst first."]
    parts += [_failure(case) for case in cases[:MOST_DRAWN]]
    left = len(cases) - MOST_DRAWN
    return "\n\n".join(parts + [f"{left} more failing cases are in failures.json."] * (left > 0))


def _failure(failure: Failure) -> str:
    ranks = f"{failure.ranks} ranks" if failure.ranks > 1 else "one device"
    rows = [
        (quantity, exact(measured.limit), number(measured.worst), _per_rank(measured.units))
        for quantity, measured in failure.wrong.items()
    ]
    return "\n\n".join(
        [
            f"### {escape(failure.case)} on {ranks}",
            f"{failure.tokens} tokens, chunks of {failure.chunk_size}.",
            table(("quantity", "limit", "worst units", "worst units per rank"), rows),
            fenced(failure.message),
        ]
    )


def _per_rank(units: list[list[list[list[float]]]]) -> str:
    worst = [max(x for row in rank for block in row for x in block) for rank in units]
    return ", ".join(f"{rank}: {number(x)}" for rank, x in enumerate(worst))


def _exchanges(found: Exchanges | None) -> str:
    if found is None:
        return ""
    rows = []
    for row in found.rows:
        counts = [str(x) for some in (row.depth, row.elements) for x in [*(some or ()), "-", "-"][:2]]
        grows = row.problem or ("yes" if row.growing else "no")
        rows.append((row.implementation, str(row.ranks), f"{row.key_size} x {row.value_size}", *counts, grows))
    header = (
        "implementation",
        "ranks",
        "K x V",
        "collectives in sequence",
        "with gradients",
        "elements",
        "with gradients",
    )
    return f"## Exchanged between ranks, for a row and head\n\n{table((*header, 'grows with T'), rows)}"


def _kills(found: Kills | None) -> str:
    if found is None:
        return "## Planted faults\n\nkills.json is absent: no faults were run here."
    columns = kills.quantities(found.kills)
    header = ["fault", "around", "dtype", "regime", "ranks", "must fail", *columns]
    header += ["times the limit", "needs", "result"]
    rows = [
        (
            *(kill.fault, kill.implementation, kill.dtype, kill.regime, str(kill.ranks), kill.must_fail),
            *(number(kill.units.get(quantity)) for quantity in columns),
            *(number(kills.reached(kill)), exact(kill.margin), kills.result(kill)),
        )
        for group in kills.by_fault(found.kills)
        for kill in group.kills
    ]
    return f"## Planted faults\n\n{kills.tally(found.kills)}.\n\n{table(header, rows)}"
