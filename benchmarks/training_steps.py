"""The tables of docs/training.md: `python benchmarks/training_steps.py`, five minutes on two cores.

Losses to three decimals beside those that thread 3 gives, and units of the loss and of the worst parameter beside them;
automatic against explicit axes, beside thread 5; and mistakes that a loss does not show, beside thread 4. Exits with 1
where right code is over the limit.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from parity.devices import simulate
from parity.tolerances.limits import limits
from parity.training_mistakes import MISTAKES, wrong_run
from parity.training_steps import SETUPS, STEPS, Run, run
from parity.training_truth import in_units, truth, worst

# Thread 3: 4x TPU v5, bf16, 4096 tokens. Thread 5: explicit against automatic axes, 20 steps on a v4-8, relative.
THREAD_3 = {
    1: ("8.119", "8.104", "8.091", "8.082", "8.076", "8.073"),
    2: ("8.119", "8.105", "8.092", "8.082", "8.076", "8.073"),
    4: ("8.119", "8.105", "8.092", "8.082", "8.076", "8.074"),
}
THREAD_5 = 3.1e-5


def main() -> int:
    simulate(8)
    limit = limits().base["f32"].units
    want, _ = truth("f32")
    context = {ranks: run(SETUPS[f"context{ranks}"]) for ranks in (1, 2, 4, 8)}
    print("\nloss by context degree; in brackets, units of the loss and of the worst parameter after the step\n")
    print(
        "| step | float64 | "
        + " | ".join(f"cp={n}" for n in context)
        + " | thread 3: cp=1, 2, 4 |\n"
        + "|---" * 7
        + "|"
    )
    for step in range(STEPS):
        theirs = ", ".join(x[step] for x in THREAD_3.values()) if step < 6 else ""
        print(f"| {step} | {want.loss[step]:.3f} | " + " | ".join(map(_at(step), context.values())) + f" | {theirs} |")

    automatic, explicit = run(SETUPS["zero1_accumulation4"]), run(SETUPS["explicit_zero1_accumulation4"])
    drift = explicit.loss / automatic.loss - 1
    print(
        f"\nexplicit against automatic axes: at most {np.abs(drift).max():.2g} relative, {_signs(drift)}; thread 5: ",
        end="",
    )
    print(f"{THREAD_5:.2g}. Both with ZeRO-1 and 4 accumulation steps")
    right = {f"context degree {n}": x for n, x in context.items()}
    right |= {"ZeRO-1, 4 accumulation steps": automatic, "the same, explicit": explicit}
    over = 0
    print("\n| run | worst loss, relative | loss, units | parameters, units | worst parameter |\n" + "|---" * 5 + "|")
    for name, found in right.items():
        over += _row(name, found, want) > limit

    print("\nmistakes: loss of each step, and units of the worst parameter after it\n")
    wrong = {f"{name}, cp=2" if name == "no_exchange" else name: wrong_run(name) for name in MISTAKES}
    print("| step | right | " + " | ".join(wrong) + " |\n" + "|---" * (2 + len(wrong)) + "|")
    for step in range(STEPS):
        print(f"| {step} | {want.loss[step]:.3f} | " + " | ".join(map(_at(step), wrong.values())) + " |")
    return int(over > 0)


def _at(step: int) -> Callable[[Run], str]:
    def cell(found: Run) -> str:
        off = in_units(found)
        return f"{found.loss[step]:.3f} ({off.loss[step]:.2g}, {worst(off)[step]:.2g})"

    return cell


def _row(name: str, found: Run, want: Run) -> float:
    off = in_units(found)
    units, parameter = max((x.max(), parameter) for parameter, x in off.parameters.items())
    relative = np.abs(found.loss / want.loss - 1).max()
    print(f"| {name} | {relative:.2g} | {off.loss.max():.2g} | {units:.2g} | {parameter} |")
    return max(units, off.loss.max())


def _signs(drift: np.ndarray) -> str:
    changes = int((np.diff(np.sign(drift[drift != 0])) != 0).sum())
    return f"which changes sign {changes} times"


if __name__ == "__main__":
    sys.exit(main())
