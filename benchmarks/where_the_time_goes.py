"""Where the gate spends its time: `python benchmarks/where_the_time_goes.py [part of a compilation's name]`.

One process, nothing from a cache, one row for each compiled program. The oracle of a problem is charged to the first
program that meets the problem; pytest computes it once too, and reads it from disk from then on.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import implementations
from oracles import reference
from parity.devices import simulate
from parity.matrix import Case, cases
from parity.problem import Problem
from parity.run import run

ORACLE = ("problem", "float64", "kappa", "balls")
COLUMNS = (*ORACLE, "compile", "run")

Seconds = dict[str, float]


def main() -> None:
    simulate(8)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [case for case in cases(implementations.ALL) if wanted in case.compilation]
    rows: list[tuple[str, int, Seconds]] = []
    met: set[tuple[str, str]] = set()
    for compilation, group in groupby(chosen, lambda case: case.compilation):
        these = list(group)
        seconds = dict.fromkeys(COLUMNS, 0.0)
        for case in these:
            if (case.problem.name, case.problem.dtype) not in met:
                met.add((case.problem.name, case.problem.dtype))
                add(seconds, of_the_oracle(case.problem))
        add(seconds, of_the_program(these))
        rows.append((compilation, len(these), seconds))
        print(f"{compilation}: {sum(seconds.values()):.1f} s", file=sys.stderr, flush=True)
    print_table(rows)


def of_the_oracle(problem: Problem) -> Seconds:
    """What `parity.truth` asks for where nothing is cached; what is neither kappa nor balls is the oracle itself."""
    watch = Stopwatch()
    arguments = {name: x.astype(np.float64) for name, x in problem.arguments.items()}
    watch.lap("problem")
    with patched("certify", watch, "balls"), patched("rms_response", watch, "kappa"):
        scale, chunk_size = problem.shape.scale, problem.shape.chunk_size
        reference.reference(arguments, scale=scale, chunk_size=chunk_size, name=problem.name)
    watch.lap("float64")
    return watch.seconds


@contextmanager
def patched(function: str, watch: "Stopwatch", name: str) -> Iterator[None]:
    """Laps around a function that `oracles.reference` calls: what came before is float64's."""
    original = getattr(reference, function)

    def timed(*arguments: Any, **keywords: Any) -> Any:
        watch.lap("float64")
        result = original(*arguments, **keywords)
        watch.lap(name)
        return result

    setattr(reference, function, timed)
    try:
        yield
    finally:
        setattr(reference, function, original)


def of_the_program(these: list[Case]) -> Seconds:
    """The first run of the first case compiles; a second run of it tells how much of that was running."""
    for case in these:
        _ = case.problem.arguments
    watch = Stopwatch()
    run(these[0].implementation, these[0].problem, these[0].ranks)
    watch.lap("compile")
    for case in these:
        run(case.implementation, case.problem, case.ranks)
        watch.lap("run")
    first_run = watch.seconds["run"] / len(these)
    return {"compile": watch.seconds["compile"] - first_run, "run": watch.seconds["run"]}


class Stopwatch:
    """Seconds between laps, added up by name."""

    def __init__(self) -> None:
        self.seconds: Seconds = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def add(total: Seconds, more: Seconds) -> None:
    for name, seconds in more.items():
        total[name] += seconds


def print_table(rows: list[tuple[str, int, Seconds]]) -> None:
    whole = dict.fromkeys(COLUMNS, 0.0)
    for _, _, seconds in rows:
        add(whole, seconds)
    width = max(len(name) for name, _, _ in rows)
    print(f"{'seconds':{width}} {'cases':>6}" + "".join(f"{name:>9}" for name in (*COLUMNS, "total")))
    for name, count, seconds in [*rows, ("total", sum(count for _, count, _ in rows), whole)]:
        cells = [*seconds.values(), sum(seconds.values())]
        print(f"{name:{width}} {count:6}" + "".join(f"{cell:9.2f}" for cell in cells))


if __name__ == "__main__":
    main()
