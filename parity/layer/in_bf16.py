"""A model in bf16 against an oracle that rounds where the layer says that it rounds, and nowhere else.

To be off by the rounding of bf16 is what a model in bf16 claims, and a gate that is rounded too hides in that. Here the
layer's own roundings are in the truth, and what is left is that of f32, but for the few numbers that lie between two of
bf16 and fall to the other side: one in 2^16, so that the unit is made with u_c = 2^-16. It is taken over all blocks of
a quantity together, for a mistake is in all of them and such a number in few.
"""

from functools import cache

import numpy as np

from oracles.gated_delta_net import QUANTITIES, cotangents_of, flattened, float64, inputs_of
from parity.layer.measure import blocks
from parity.layer.problem import CHUNK_SIZE, Problem, Values, arguments, dtype_of, truth
from parity.layer.run import Around, answer
from parity.precision import SMALLEST_NORMAL, round_to
from parity.unit import units

# As `implementations.layer` says: behind the projections, in front of the rule and behind it; and their cotangents.
ROUNDED = (
    *(f"{d}{name} projected" for name in ("q", "k", "v", "z") for d in ("", "d")),
    *(f"{d}{name} normalised" for name in ("q", "k") for d in ("", "d")),
    *("v silu", "dv silu", "o", "do"),
)
# In the gradients of what lies before the L2 norm the oracle reads the rounded q and k, and the layer those before.
KNOWN = ("y", "final_recurrent_state", "dz", "da", "db", "dA_log", "ddt_bias", "dnorm", "dout", "drecurrent_state")

U = 2.0**-16


def beyond_rounding(around: Around, problem: Problem) -> dict[str, float]:
    """Of each of `KNOWN` the rms over its blocks of the units, of an answer on one device to a problem in bf16."""
    found, (_, kappa) = answer(around, problem), truth(problem)
    return {name: _units(problem, name, found[name][0], _rounded_truth(problem)[name], kappa[name]) for name in KNOWN}


@cache
def _rounded_truth(problem: Problem) -> Values:
    exact = {name: x.astype(np.float64) for name, x in arguments(problem).items()}
    results = float64.forward_and_adjoint(
        *inputs_of(exact), *cotangents_of(exact), perturb=_as_the_layer, chunk_size=CHUNK_SIZE
    )
    values = dict(zip(QUANTITIES, flattened(results), strict=True))
    # Of outputs the last rounding is in the truth as well.
    narrow = [name for name in QUANTITIES if dtype_of(name, problem.dtype) == "bf16"]
    return values | {name: round_to(values[name], "bf16").astype(np.float64) for name in narrow}


def _as_the_layer(name: str, value: np.ndarray) -> np.ndarray:
    return round_to(value, "bf16").astype(np.float64) if name in ROUNDED else value


def _units(problem: Problem, quantity: str, got: np.ndarray, want: np.ndarray, kappa: np.ndarray) -> float:
    of_blocks = [
        units(*block, u_c=U, u_out=0.0, floor=SMALLEST_NORMAL["bf16"]).ravel()
        for _, block in blocks(problem, quantity, got.astype(np.float64), want, kappa)
    ]
    return float(np.sqrt(np.mean(np.concatenate(of_blocks) ** 2)))
