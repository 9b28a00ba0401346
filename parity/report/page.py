"""The report as one HTML page: everything is in it, nothing is loaded, and it is read without scripts."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from parity.report import heat_map, kills
from parity.report.accuracy import Row
from parity.report.comparison import counts, pairs
from parity.report.documents import Run
from parity.report.failures import MOST_DRAWN, first_few, worst_first
from parity.report.numbers import exact, number, percent, times
from parity.report.summary import claim, flat, headroom, mismatches, summary


def html(run: Run, against: Run | None = None) -> str:
    """The page of `run`, compared with `against` where that is given."""
    return _environment().get_template("page.html").render(run=run, against=against, pairs=pairs(run, against))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "exact": exact,
        "percent": percent,
        "times": times,
        "breakable": _breakable,
    }
    environment.globals |= {
        "bright_end": heat_map.bright_end,
        "both": _both,
        "by_fault": kills.by_fault,
        "by_implementation": _by_implementation,
        "claim": claim,
        "counts": counts,
        "first_few": first_few,
        "flat": flat,
        "headroom": headroom,
        "heat_map": heat_map.heat_map,
        "legend": heat_map.legend,
        "mismatches": mismatches,
        "most_drawn": MOST_DRAWN,
        "over": kills.over,
        "quantities": kills.quantities,
        "reached": kills.reached,
        "result": kills.result,
        "tally": kills.tally,
        "summary": summary,
        "worst_first": worst_first,
    }
    return environment


def _both(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _by_implementation(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Rows of one implementation and dtype under one heading."""
    return [(name, list(same)) for name, same in groupby(rows, key=lambda row: f"{row.implementation}, {claim(row)}")]


def _breakable(name: str) -> Markup:
    """A long name may break after an underscore or a hyphen."""
    return Markup(str(escape(name)).replace("_", "_<wbr>").replace("-", "-<wbr>"))
