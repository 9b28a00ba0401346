"""What a platform was seen to do: written by `python -m parity observe`, read by tests, and never a limit.

Of TPUs that nobody has observed there is a prediction: the gate with the products of a matrix unit, emulated.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from implementations.contract import Dtype
from parity.tolerances.entries import BadTable, read_toml
from parity.tolerances.platforms import PLATFORMS, TPUS

OBSERVED = Path(__file__).parent / "observed"
PREDICTED = "tpu-emulated"  # of all TPUs: what differs between their matrix units is not emulated
HEADER = "# Written by `python -m parity observe`: do not edit. An observation never raises a limit.\n\n"

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Observation:
    """Units over all items of one implementation, dtype and quantity; `by_regime`: the most in each."""

    arithmetic: Dtype
    max_units: float
    rms_units: float
    worst_case: str
    judged: int
    by_regime: dict[str, float]


@dataclass(frozen=True)
class Ledger:
    """`observed` by implementation, dtype and quantity; `provenance`: where, of what, from which `seeds`, and for a
    prediction `emulated`, the policy of `parity.arithmetic` by which products were made.
    """

    provenance: dict[str, Any]
    observed: dict[Key, Observation]


def path_of(platform: str) -> Path:
    """Of one of `PLATFORMS`, or of `PREDICTED`."""
    return OBSERVED / f"{platform}.toml"


def ledgers() -> dict[str, Ledger]:
    """Those that there are, by platform; the prediction for each TPU that has none of its own. Raises BadTable."""
    predicted = path_of(PREDICTED)
    of_tpus = dict.fromkeys(TPUS, read(predicted)) if predicted.exists() else {}
    return of_tpus | {platform: read(path_of(platform)) for platform in PLATFORMS if path_of(platform).exists()}


def read(path: Path) -> Ledger:
    """Raises BadTable where the file is not what `write` wrote."""
    document = read_toml(path)
    try:
        observed = {
            (implementation, dtype, quantity): Observation(**values)
            for implementation, dtypes in document["observed"].items()
            for dtype, quantities in dtypes.items()
            for quantity, values in quantities.items()
        }
        return Ledger(document["provenance"], observed)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadTable(f"{path}: it is not a ledger ({error!r}); `python -m parity observe` writes a new one") from None


def write(path: Path, ledger: Ledger) -> None:
    """The whole file or nothing: it is renamed into place when it is complete."""
    observed: dict[str, Any] = {}
    for (implementation, dtype, quantity), observation in sorted(ledger.observed.items()):
        observed.setdefault(implementation, {}).setdefault(dtype, {})[quantity] = asdict(observation)
    text = HEADER + tomli_w.dumps({"provenance": ledger.provenance, "observed": observed})
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def from_report(document: Mapping[str, Any], seeds: str, emulated: str | None = None) -> Ledger:
    """The ledger of a run that left `document` as its accuracy.json; rows in which nothing was judged have no entry.

    `emulated`: the policy of a run with `--matmul-precision`. Its entries have the names of what was emulated.
    """
    suffix = f"_{emulated}" if emulated else ""
    return Ledger(
        {**document["environment"], "seeds": seeds, **({"emulated": emulated} if emulated else {})},
        {
            (r["implementation"].removesuffix(suffix), r["dtype"], r["quantity"]): _observation(r)
            for r in document["rows"]
            if r["judged"]
        },
    )


def _observation(row: Mapping[str, Any]) -> Observation:
    worst = max(row["by_regime"].values(), key=lambda found: float(found["units"]))
    return Observation(
        arithmetic=row["arithmetic"],
        max_units=_rounded(worst["units"]),
        rms_units=_rounded(row["rms_units"]),
        worst_case=worst["item"],
        judged=row["judged"],
        by_regime={regime: _rounded(found["units"]) for regime, found in row["by_regime"].items()},
    )


def _rounded(units: float | str) -> float:
    """Four digits: what follows them is noise, and would be all that a diff shows. An infinity is "inf" in JSON."""
    return float(f"{float(units):.4g}")
