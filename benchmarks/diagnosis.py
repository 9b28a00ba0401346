"""Whether a failure names its cause: `python benchmarks/diagnosis.py [--only FAULT]...`.

Each fault of the catalogue is planted in code that the catalogue was not written for (`parity.faults.elsewhere`), run
on the first regime that the fault names, and read as the gate would read it, in one run. A reading is

- `yes`: it names the fault, and no other;
- `ambiguous`: it names the fault among others that agree as well, for on this problem they do the same;
- `no`: it does not name the fault.

The first two are right. Exits 1 where fewer than 90 percent are. What the catalogue answers is kept from one fault to
the next on the same problem, as the gate does not: the slowest reading of a problem shows what one costs there.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.devices import simulate
from parity.diagnosis import by_fault, planted
from parity.faults.catalogue import CATALOGUE
from parity.faults.elsewhere import NOT_ELSEWHERE, PLANTED_ELSEWHERE
from parity.faults.fault import Fault
from parity.matrix import Case
from parity.problem import Problem

ENOUGH = 0.9


@dataclass(frozen=True)
class Reading:
    """What is said of one planted fault: the names that are printed, and how many agree as well as these."""

    fault: Fault
    named: tuple[str, ...]
    count: int
    seconds: float

    @property
    def right(self) -> str:
        if self.fault.name not in self.named:
            return "no"
        return "yes" if self.count == 1 else "ambiguous"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="FAULT", help="this fault; may be given again")
    wanted = parser.parse_args(arguments).only or list(PLANTED_ELSEWHERE)
    unknown = sorted(set(wanted) - PLANTED_ELSEWHERE.keys())
    if unknown:
        parser.error(f"no fault is planted elsewhere as {', '.join(unknown)}; known are {', '.join(PLANTED_ELSEWHERE)}")

    simulate(8)
    planted.answers = Kept().answers
    chosen = sorted((fault for fault in CATALOGUE if fault.name in wanted), key=problem_of)
    readings = []
    for number, fault in enumerate(chosen, 1):
        readings.append(read(fault))
        print(f"{number}/{len(chosen)} {row(readings[-1])}", file=sys.stderr, flush=True)
    return report(readings)


class Kept:
    """`planted.answers`, each fault asked once a problem. Answers to one problem make way for those to the next."""

    def __init__(self) -> None:
        self._ask = planted.answers
        self._problem: tuple[Problem, int] | None = None
        self._kept: dict[tuple[Fault, tuple[str, ...]], planted.Answers] = {}

    def answers(self, faults: Sequence[Fault], problem: Problem, ranks: int, names: tuple[str, ...]) -> planted.Answers:
        if self._problem != (problem, ranks):
            self._problem, self._kept = (problem, ranks), {}
        new = [fault for fault in faults if (fault, names) not in self._kept]
        found = self._ask(new, problem, ranks, names) if new else {}
        self._kept |= {(fault, names): {fault: found[fault]} if fault in found else {} for fault in new}
        return {fault: answer for each in faults for fault, answer in self._kept[each, names].items()}


def problem_of(fault: Fault) -> tuple[str, ...]:
    return fault.shape.name, fault.dtype, fault.regimes[0], fault.packing, str(fault.ranks)


def read(fault: Fault) -> Reading:
    """Run the fault where it is planted elsewhere, and ask what the result resembles."""
    start = time.perf_counter()
    problem = Problem(fault.regimes[0], fault.shape, fault.dtype, packing=fault.packing)
    found = by_fault.resembling(Case(PLANTED_ELSEWHERE[fault.name], problem, fault.ranks)).found
    named = tuple(resemblance.fault.name for resemblance in found[: by_fault.NAMED])
    return Reading(fault, named, len(found), time.perf_counter() - start)


def row(x: Reading) -> str:
    case = f"{x.fault.dtype}-{x.fault.regimes[0]}-{x.fault.shape.name} on {x.fault.ranks}"
    return f"{x.fault.name:38} {case:34} {x.right:9} {x.count:2} {x.seconds:7.1f}  {', '.join(x.named) or 'nothing'}"


def report(readings: Sequence[Reading]) -> int:
    """Print the table; 1 where too few are right."""
    print(f"{'fault, planted in textbook':38} {'problem, ranks':34} {'right':9}  n seconds  named, best first")
    for reading in readings:
        print(row(reading))
    for name, reason in NOT_ELSEWHERE.items():
        print(f"{name:38} not planted: {reason}")
    right, alone = (sum(x.right in words for x in readings) for words in (("yes", "ambiguous"), ("yes",)))
    seconds = sum(x.seconds for x in readings)
    print(f"{right} of {len(readings)} right ({right / len(readings):.1%}), {alone} of them alone, in {seconds:.0f} s")
    return 0 if right >= ENOUGH * len(readings) else 1


if __name__ == "__main__":
    sys.exit(main())
