"""What a revision of this suite says about its own strictness, as JSON: `python -m parity.tolerances.facts`.

`python -m parity limits --check REV` runs it in both revisions, so that each describes itself with its own code.
"""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import implementations
from oracles.gated_delta_rule import QUANTITIES
from parity.devices import simulate
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.fault import Fault
from parity.matrix import MESHES, cases, items
from parity.precision import DTYPES
from parity.regimes import REGIMES
from parity.tolerances import difference, expectations, headroom
from parity.tolerances.limits import CAP, limits
from parity.tolerances.platforms import PLATFORMS
from parity.tolerances.probe import probes
from parity.tolerances.provenance import ROOT
from parity.truth import CERTIFIED_SHARE

EXPECTED = Path(__file__).parent / "expected"

OURS = implementations.ALL + implementations.VARIANTS

# A value that no row names: what holds for it holds for whatever comes.
ANY_OTHER = "any_other"


def facts() -> dict[str, Any]:
    """Everything in which one revision can be looser than another."""
    return {
        "root": str(ROOT),
        "larger is looser": {
            **{f"cap of {arithmetic}": units for arithmetic, units in CAP.items()},
            **{f"certified share of {arithmetic}": share for arithmetic, share in CERTIFIED_SHARE.items()},
            "most headroom": headroom.MOST,
            "growth of max units": difference.MOST_GROWTH_OF_MAX,
            "growth of rms units": difference.MOST_GROWTH_OF_RMS,
        },
        "smaller is looser": {"least headroom": headroom.LEAST},
        "limits": _limits(),
        "claims": {f"{x.name} {dtype}": claim for x in OURS for dtype, claim in x.arithmetic.items()},
        "items": [item.name for item in items(cases(OURS)) if not item.not_applicable()],
        "faults": {fault.name: _fault(fault) for fault in CATALOGUE},
        "null models": [fault.name for fault in NULL_MODELS],
        "expected": [_expected(row) for row in expectations.load(sorted(EXPECTED.glob("*.toml")))],
        "probes": [asdict(probe) for probe in probes()],
    }


def _limits() -> dict[str, tuple[float, str]]:
    """Units and row by implementation, claim, dtype, quantity, regime and platform, each with a value that is new."""
    table = limits()
    named = {str(x) for row in table.rows for x in row.selector.axes.get("implementation", ())}
    names = (*sorted(named | {x.name for x in OURS}), ANY_OTHER)
    found = {}
    for point in product(names, DTYPES, DTYPES, QUANTITIES, (*REGIMES, ANY_OTHER), (*PLATFORMS, ANY_OTHER)):
        name, claimed, dtype, quantity, regime, platform = point
        row = table.resolve(
            claimed, implementation=name, dtype=dtype, quantity=quantity, regime=regime, platform=platform
        )
        found[" ".join(point)] = row.units, row.name
    return found


def _fault(fault: Fault) -> dict[str, Any]:
    return {
        "quantity": fault.quantity,
        "regimes": list(fault.regimes),
        "margin": fault.margin,
        "dtype": fault.dtype,
        "ranks": fault.ranks,
        "right": list(fault.right),
    }


def _expected(row: expectations.Expectation) -> dict[str, Any]:
    axes = {axis: sorted(values, key=str) for axis, values in row.selector.axes.items()}
    return {"where": row.where.rpartition("/")[2], "kind": row.kind, "axes": axes, "units": row.units}


if __name__ == "__main__":
    simulate(max(MESHES))  # as conftest.py does: probes are put to several ranks
    print(json.dumps(facts()))
