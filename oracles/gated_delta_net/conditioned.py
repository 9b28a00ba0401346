"""kappa of the layer: how far each result moves when every argument, and everything computed between, moves."""

import numpy as np

from oracles.conditioning import rms_response
from oracles.gated_delta_net import ARGUMENTS, QUANTITIES, cotangents_of, flattened, float64, inputs_of
from oracles.gated_delta_net.parts import Perturb


def conditioned(
    arguments: dict[str, np.ndarray], *, name: str, segment_ids: np.ndarray | None = None, chunk_size: int = 64
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """`(values, kappa)` by `QUANTITIES`: what `float64` says, and its rms response, in the same shapes.

    What moves, each element by a relative unit of its own: all `ARGUMENTS`, and all that `forward_and_adjoint` hands to
    `perturb`, intermediates and their cotangents. The latter is not implied by the former: where a sum cancels, or an
    exponent is near 0, what a unit roundoff does to the result is in no proportion to what it does to an input.
    `chunk_size` is that of the code to be judged; `name` seeds the signs. Raises ValueError on shapes that do not fit
    together.
    """
    factors: dict[str, np.ndarray] = {}

    def seen(place: str, value: np.ndarray) -> np.ndarray:
        if place in factors:
            raise RuntimeError(f"the layer has perturbed {place!r} twice: each place needs a name of its own")
        factors[place] = np.ones_like(value)
        return value

    def results(given: dict[str, np.ndarray], perturb: Perturb) -> tuple[np.ndarray, ...]:
        both = (*inputs_of(given), *cotangents_of(given))
        return flattened(
            float64.forward_and_adjoint(*both, segment_ids=segment_ids, perturb=perturb, chunk_size=chunk_size)
        )

    def moved(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        factor_of = dict(zip(factors, arrays[len(ARGUMENTS) :], strict=True))
        given = dict(zip(ARGUMENTS, arrays, strict=False))
        return results(given, lambda place, value: value * factor_of[place])

    exact = results(arguments, seen)
    everything = (*(arguments[name] for name in ARGUMENTS), *factors.values())
    response = rms_response(moved, everything, name=name, result=exact)
    return dict(zip(QUANTITIES, exact, strict=True)), dict(zip(QUANTITIES, response, strict=True))
