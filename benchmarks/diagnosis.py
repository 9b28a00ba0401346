"""Whether a failure names its cause: `python benchmarks/diagnosis.py [--only FAULT]...`.

Each fault of the catalogue is planted in code that the catalogue was not written for (`parity.faults.elsewhere`), run
on the first regime that the fault names, and read as the gate would read it, in one run. A reading is

- `yes`: it names the fault, and nothing else that agrees as well;
- `ambiguous`: it names the fault among others that agree as well, for on this problem they do the same;
- `no`: it does not name the fault, or names another that agrees better.

The first two are right. Exits 1 where fewer than 90 percent are.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.diagnosis.by_fault import Resemblance, resembling
from parity.faults.catalogue import CATALOGUE
from parity.faults.elsewhere import NOT_ELSEWHERE, PLANTED_ELSEWHERE
from parity.faults.fault import Fault
from parity.matrix import Case
from parity.problem import Problem
from parity.verdict import judge

ENOUGH = 0.9
# Two that agree with the result this well, in units of the distance of the better one, agree with it equally well.
AS_WELL = 2.0


@dataclass(frozen=True)
class Reading:
    """What is said of one planted fault. `as_well`: how many of those named agree as well as the best."""

    fault: Fault
    named: tuple[str, ...]
    right: str
    as_well: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="FAULT", choices=sorted(PLANTED_ELSEWHERE))
    wanted = parser.parse_args().only
    chosen = [f for f in CATALOGUE if f.name in PLANTED_ELSEWHERE and (not wanted or f.name in wanted)]
    jax.config.update("jax_num_cpu_devices", 8)
    readings = []
    with tempfile.TemporaryDirectory() as folder:
        _keep_programs(folder)
        for number, fault in enumerate(chosen, 1):
            readings.append(read(fault))
            print(f"{number}/{len(chosen)} {_row(readings[-1])}", file=sys.stderr, flush=True)
    return report(readings)


def _keep_programs(folder: str) -> None:
    """The catalogue is run on every failing problem: compile each of its programs once."""
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def read(fault: Fault) -> Reading:
    """Run the fault where it is planted elsewhere, and ask what the result resembles."""
    start = time.perf_counter()
    case = Case(PLANTED_ELSEWHERE[fault.name], Problem(fault.regimes[0], fault.shape, fault.dtype), fault.ranks)
    found = resembling(case)
    limit = judge(case).findings[0, fault.quantity].limit
    as_well = _as_well_as_the_best(found, limit)
    right = "no" if fault.name not in as_well else "yes" if len(as_well) == 1 else "ambiguous"
    named = tuple(f"{r.fault.name} {r.units:.2g}" for r in found)
    return Reading(fault, named, right, len(as_well), time.perf_counter() - start)


def _as_well_as_the_best(found: list[Resemblance], limit: float) -> list[str]:
    """The names of those that agree to rounding, or nearly as closely as the best does."""
    if not found:
        return []
    return [r.fault.name for r in found if r.units <= max(limit, AS_WELL * found[0].units)]


def _row(x: Reading) -> str:
    where = PLANTED_ELSEWHERE[x.fault.name].name
    named = ", ".join(x.named) or "nothing"
    return f"{x.fault.name:34} {x.right:9} {x.as_well:2} {x.seconds:6.1f}  {where}: {named}"


def report(readings: list[Reading]) -> int:
    """Print the table; 1 where too few are right."""
    print(f"{'fault':34} {'right':9} {'as well':>2} {'seconds':6}  planted in: named, with units of distance")
    for reading in readings:
        print(_row(reading))
    for name, reason in NOT_ELSEWHERE.items():
        print(f"{name:34} {'-':9} {reason}")
    right = sum(x.right != "no" for x in readings)
    alone = sum(x.right == "yes" for x in readings)
    share = right / len(readings)
    seconds = sum(x.seconds for x in readings)
    print(f"{right} of {len(readings)} named right ({share:.0%}), {alone} of them alone, in {seconds:.0f} s")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
