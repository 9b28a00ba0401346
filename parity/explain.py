"""A failure in one message: all quantities, where each is worst, where it starts, what is right beside it."""

from collections.abc import Callable

import numpy as np

from oracles.gated_delta_rule import QUANTITIES
from parity.diagnosis import by_document, by_fault, by_place, by_precision, by_stage, controls
from parity.matrix import Item
from parity.run import REPLICATED
from parity.unit import BLOCK
from parity.verdict import Finding, Verdict


def explain(item: Item, verdict: Verdict, rerun: str) -> str:
    """The whole message for a failing `item` of the case of `verdict`. `rerun`: the command that repeats it."""
    finding = verdict.findings[item.rank, item.quantity]
    paragraphs = [
        f"{item.name}: {headline(finding)}",
        measured(verdict),
        _first_bad_block(verdict, item.quantity),
        *(f"{title}\n{text}" for title, text in _readings(verdict) if text),
        f"run it again\n    {rerun}",
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def measured(verdict: Verdict) -> str:
    """All quantities in units, worst first, the worst elements of those that are wrong, and what was not measured."""
    case = verdict.case
    ranks = f"on {case.ranks} ranks" if case.ranks > 1 else "on one device"
    table = f"{case.name} {ranks}, worst first\n{_table(verdict)}"
    return "\n\n".join(text for text in (table, _elements(verdict), _failures(verdict)) if text)


def _readings(verdict: Verdict) -> list[tuple[str, str]]:
    """What the failure looks like, each part empty where nothing fits."""
    readings: tuple[tuple[str, Callable[[Verdict], str]], ...] = (
        ("where", by_place.read),
        ("documents", by_document.read),
        ("precision", by_precision.read),
        ("stages", by_stage.read),
        ("known mistakes", by_fault.read),
        ("on the same inputs", controls.read),
    )
    return [(title, _unless_it_raises(read, verdict)) for title, read in readings]


def headline(finding: Finding) -> str:
    """What is wrong with one quantity, in one line."""
    if finding.failure:
        return finding.failure.splitlines()[0]
    return f"{finding.worst_units:.3g} units where the limit is {finding.limit:g}"


def _table(verdict: Verdict) -> str:
    rows = []
    for quantity in _worst_first(verdict):
        findings = _of(verdict, quantity)
        if findings[0].failure:
            continue
        worst = max(findings, key=lambda f: f.worst_units)
        per_rank = "   ".join(f"{f.rank}: {f.worst_units:.3g}" for f in findings)
        mark = "ok" if all(f.passes for f in findings) else "WRONG"
        rows.append(
            f"    {quantity:<12}{worst.worst_units:>10.3g}{worst.limit:>7g}{worst.relative_error:>10.1e}"
            f"  {mark:<6} {per_rank}"
        )
    header = f"    {'':<12}{'units':>10}{'limit':>7}{'relative':>10}  {'':<6} units per rank"
    return "\n".join([header, *rows]) if rows else "    nothing could be measured"


def _elements(verdict: Verdict) -> str:
    """Index, got and want of the worst element of each wrong quantity."""
    lines = []
    for quantity in _worst_first(verdict):
        worst = max(_of(verdict, quantity), key=lambda f: f.worst_units)
        if worst.passes or worst.worst is None:
            continue
        axes = "row, head, k, v" if quantity in ("final_state", "dh0") else "row, token, head, element"
        index, got, want = worst.worst.index, worst.worst.got, worst.worst.want
        named = ", ".join(axes.split(", ")[: len(index)])
        lines.append(f"    {quantity}{list(index)} ({named}) on rank {worst.rank}")
        lines += [f"        {name} {x:< 24.17g} {x.hex()}" for name, x in (("got ", got), ("want", want))]
    return "\n".join(["the worst elements", *lines]) if lines else ""


def _first_bad_block(verdict: Verdict, quantity: str) -> str:
    """The first block in sequence order in which `quantity` is over its limit, in any row and head."""
    for finding in _of(verdict, quantity):
        over = ~(finding.units <= finding.limit)
        if finding.failure or not over.any():
            continue
        block = int(np.argmax(over.any(axis=(0, 2))))
        where = [f"row {row} head {head}" for row, head in np.argwhere(over[:, block])]
        heads = (
            f"{len(where)} of {over[:, block].size} rows and heads: {', '.join(where[:4])}{', ...' * (len(where) > 4)}"
        )
        if quantity in REPLICATED:
            return f"first bad copy of {quantity}: rank {finding.rank}, in {heads}"
        shape, ranks = verdict.case.problem.shape, verdict.case.ranks
        first = finding.rank * (shape.T // ranks) + block * BLOCK
        last = min(first + BLOCK, (finding.rank + 1) * (shape.T // ranks)) - 1
        return f"first bad block of {quantity}: rank {finding.rank}, tokens {first} to {last}, in {heads}"
    return ""


def _failures(verdict: Verdict) -> str:
    """What was raised or refused, each text once, with the quantities that it cost."""
    cost: dict[str, list[str]] = {}
    for quantity in QUANTITIES:
        for finding in _of(verdict, quantity)[:1]:
            if finding.failure:
                cost.setdefault(finding.failure, []).append(quantity)
    return "\n\n".join(f"{', '.join(quantities)}: not measured\n{_indent(text)}" for text, quantities in cost.items())


def _unless_it_raises(read: Callable[[Verdict], str], verdict: Verdict) -> str:
    """A diagnosis that fails must not hide the failure that it was asked about: it is said in one line."""
    try:
        return read(verdict)
    except Exception as error:
        return f"    not known: {type(error).__name__}: {' '.join(str(error).split())}"


def _worst_first(verdict: Verdict) -> list[str]:
    asked = [q for q in QUANTITIES if (0, q) in verdict.findings]
    return sorted(asked, key=lambda q: -max(f.worst_units / f.limit for f in _of(verdict, q)))


def _of(verdict: Verdict, quantity: str) -> list[Finding]:
    return [f for (_, name), f in sorted(verdict.findings.items()) if name == quantity]


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def rerun_command(item: Item, node: str, options: str) -> str:
    """The command that repeats one item. `node`: its test, without the parameter; `options`: what selects its case."""
    return f'python -m pytest -n0 "{node}[{item.name}]"{options}'
