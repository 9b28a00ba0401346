"""`python -m parity observe`: the gate on fresh seeds, and the ledger of this platform rewritten from it; or that of
TPUs predicted, from products as their matrix unit would make them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.seeds import as_text as seeds_as_text
from parity.seeds import seeds
from parity.tolerances import difference
from parity.tolerances.ledger import PREDICTED, Ledger, from_report, path_of, read, write
from parity.tolerances.limits import limits
from parity.tolerances.platforms import PLATFORMS, TPUS
from parity.tolerances.provenance import ROOT

SEEDS = 2
# What a TPU does with products that say how precise they are to be; and it has no f64.
EMULATED = "as_written"
ON_TPUS = ["--matmul-precision", EMULATED, "-k", "not f64"]


class CannotObserve(Exception):
    """Nothing can be observed here; the message says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the gate on fresh seeds, print what changed against the ledger of this platform, and rewrite it. "
        "Exit status: 0, 1 where anything is worse (a red gate leaves the ledger as it is), 2 where nothing was run."
    )
    parser.add_argument(
        "--seeds",
        metavar="FIRST-LAST",
        help=f"the draws to observe (default: the {SEEDS} that follow those in the ledger)",
    )
    parser.add_argument(
        "--emulated",
        action="store_true",
        help="predict the ledger of TPUs on this machine: f32 and bf16, with every product in as many passes of a "
        "matrix unit as it asks for; a TPU that was observed itself keeps its own",
    )


def main(arguments: argparse.Namespace) -> int:
    try:
        platform = PREDICTED if arguments.emulated else _platform()
        path = path_of(platform)
        before = read(path) if path.exists() else None
        chosen = _seeds(arguments.seeds, before)
        print(f"observing {platform} on seeds {seeds_as_text(chosen)}", flush=True)
        after = _observe(platform, seeds_as_text(chosen))
    except CannotObserve as error:
        print(error, file=sys.stderr)
        return 2
    if after is None:
        print(f"The gate is red: {path} is left as it was.")
        return 1
    if not after.provenance["clean_tree"]:
        print("The tree is not clean: what was observed is not the commit that the ledger names.")
    worse = _report(TPUS if arguments.emulated else (platform,), before, after)
    write(path, after)
    print(f"written to {path}")
    return 1 if worse else 0


def _platform() -> str:
    """Asked of another process: on a TPU this one must not hold the devices that the gate needs."""
    ask = "from parity.tolerances.platforms import current; import jax; print(current(), jax.devices()[0].device_kind)"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotObserve(f"jax does not start here:\n{done.stderr}")
    platform, _, device_kind = done.stdout.strip().partition(" ")
    if platform not in PLATFORMS:
        raise CannotObserve(
            f"the device {device_kind!r} is none of {', '.join(PLATFORMS)}: there is no ledger for it. "
            f"Where it should be one, add it to parity/tolerances/platforms.py"
        )
    return platform


def _seeds(given: str | None, before: Ledger | None) -> tuple[int, ...]:
    if given is None:
        first = seeds(before.provenance["seeds"])[-1] + 1 if before else 1
        return tuple(range(first, first + SEEDS))
    try:
        chosen = seeds(given)
    except ValueError as error:
        raise CannotObserve(str(error)) from None
    if 0 in chosen:
        raise CannotObserve(f"--seeds {given}: seed 0 is the gate's own; an observation needs fresh draws, from 1 on")
    return chosen


def _observe(platform: str, seeds: str) -> Ledger | None:
    """The gate, its progress printed as it goes; None where it was red."""
    emulated = EMULATED if platform == PREDICTED else None
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pytest", "parity", "-m", "gate", "--seeds", seeds]
        command += ON_TPUS if emulated else ["--tpu"] * platform.startswith("tpu")
        status = subprocess.run([*command, f"--parity-report={directory}"], cwd=ROOT, check=False).returncode
        report = Path(directory) / "accuracy.json"
        if status != 0 or not report.exists():
            return None
        document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return from_report(document, seeds, emulated)


def _report(platforms: Sequence[str], before: Ledger | None, after: Ledger) -> bool:
    """Print what changed; whether anything is worse."""
    found = difference.changes(before, after)
    print(difference.as_text(found))
    near = sorted({x for platform in platforms for x in difference.near_their_limit(limits(), platform, after)})
    if near:
        print("\n".join(["too near to the limit:", *near]))
    worse = [change for change in found if change.worse]
    print(f"{len(worse)} of {len(found)} entries are worse, {len(near)} too near to their limit")
    return bool(worse or near)
