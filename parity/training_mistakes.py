"""The mistakes of a training step that must be seen, and that a failure is compared with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from parity.faults.catalogue import CATALOGUE
from parity.faults.edits import Edit, edited
from parity.tolerances.limits import limits
from parity.training_steps import SETUPS, Run, Setup, run
from parity.training_truth import in_units

STEP = "implementations.training_step"
NO_EXCHANGE = next(fault for fault in CATALOGUE if fault.name == "no_exchange")

# How much nearer than the truth a mistake must be, wherever the failure is over the limit; two codes that are each
# within the limit of one function are within twice the limit of each other.
NEARER, ROUNDING = 30.0, 2.0


@dataclass(frozen=True)
class Mistake:
    """`plant(setup)` is the run with the mistake in it, where it `applies` to a setup; it is shown in that of `shown`.

    `cause`: one line for the reader of a failure. `first`: the step whose update is the first to be wrong, from 1.
    """

    name: str
    cause: str
    shown: str
    first: int
    plant: Callable[[Setup], Setup]
    applies: Callable[[Setup], bool]

    def planted(self, setup: Setup) -> Setup:
        return replace(self.plant(setup), name=f"{setup.name}_with_{self.name}")


def _edited(old: str, new: str) -> Callable[[Setup], Setup]:
    return lambda setup: replace(setup, step=_step(old, new))


@cache  # a setup with another step is another program
def _step(old: str, new: str) -> Callable[..., object]:
    step: Callable[..., object] = edited(f"{STEP}:step", Edit(STEP, old, new))
    return step


_MEAN = "    return value, gradients\n"

MISTAKES = {
    mistake.name: mistake
    for mistake in (
        Mistake(
            "state_of_the_other_rank",
            "with ZeRO-1 each rank updates its part of the parameters with the moments of another's part",
            "zero1_accumulation4",
            2,
            _edited(
                "optimizer_state, parts)",
                "jax.tree.map(lambda x: x if (i := divided_axis(x, 2)) is None else jnp.roll(x, x.shape[i] // 2, i), "
                "optimizer_state), parts)",
            ),
            lambda setup: setup.zero1,
        ),
        Mistake(
            "divided_twice",
            "the sum over microbatches is divided by their number twice",
            "accumulation4",
            1,
            _edited(_MEAN, "    return value, jax.tree.map(lambda x: x / accumulation, gradients)\n"),
            lambda setup: setup.accumulation > 1,
        ),
        Mistake(
            "not_divided",
            "the gradients are the sum over microbatches, and not the mean",
            "accumulation4",
            1,
            _edited(_MEAN, "    return value, jax.tree.map(lambda x: x * accumulation, gradients)\n"),
            lambda setup: setup.accumulation > 1,
        ),
        Mistake(
            "no_exchange",
            NO_EXCHANGE.cause,
            "context2",
            1,
            lambda setup: replace(setup, rule=NO_EXCHANGE.on(setup.rule)),
            lambda setup: setup.context > 1,
        ),
    )
}


def wrong_run(name: str) -> Run:
    """The run with a mistake, in the setup that it is shown in."""
    mistake = MISTAKES[name]
    return run(mistake.planted(SETUPS[mistake.shown]))


def resembling(setup: Setup, found: Run) -> list[Mistake]:
    """The mistakes that give the loss and the parameters of `found`, in f32, nearest first."""
    near = {}
    for mistake in MISTAKES.values():
        if mistake.applies(setup):
            distance = _distance(found, run(mistake.planted(setup)))
            if distance is not None:
                near[mistake.name] = distance
    return [MISTAKES[name] for name in sorted(near, key=near.__getitem__)]


def _distance(found: Run, mistaken: Run) -> float | None:
    """The worst units between the two of any array; None where one is too far off."""
    of_truth, apart = in_units(found), in_units(found, other=mistaken)
    limit = limits().base["f32"].units
    each = [(of_truth.loss, apart.loss), *((x, apart.parameters[name]) for name, x in of_truth.parameters.items())]
    if not all(np.all(off <= np.maximum(ROUNDING * limit, wrong / NEARER)) for wrong, off in each):
        return None
    return float(max(off.max() for _, off in each))
