"""The whole rule with a coarser inverse in it: how many units that costs each quantity.

Everything else stays in f32, so that what is off is due to the products of the UT transform alone.
"""

from functools import partial

import numpy as np

from implementations.chunked import Invert, chunked
from implementations.contract import Implementation
from implementations.pallas.inversion import inversion
from implementations.ut_inversion.ladder import ladder
from implementations.ut_inversion.products import Product, bf16x3, full, one_bf16_pass
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.problem import Problem
from parity.run import run
from parity.shapes import WIDE
from parity.truth import per_token, truth
from parity.unit import units

PRODUCTS: dict[str, Product] = {"full": full, "bf16x3": bf16x3, "one_bf16_pass": one_bf16_pass}
INVERSES = {"ladder": ladder, "pallas": inversion}


def with_inverse(inverse: str, product: str) -> Implementation:
    """`chunked` in f32 with that of `INVERSES`, which multiplies by that of `PRODUCTS`, backward too."""
    invert: Invert = partial(INVERSES[inverse], product=PRODUCTS[product])
    return Implementation(f"chunked_{inverse}_{product}", partial(chunked, invert=invert), arithmetic={"f32": "f32"})


def in_units(implementation: Implementation, regime: str, u: float) -> dict[str, float]:
    """By quantity the most units of any block in the wide shape, where the unit roundoff `u` is claimed.

    Outputs are f32: what they may lose to their own rounding is that of f32. Infinite where nothing could be measured.
    """
    problem = Problem(regime, WIDE, "f32")
    answer, wanted = run(implementation, problem, 1), truth(problem)
    found = dict.fromkeys(answer.failures, np.inf)
    for quantity, pieces in answer.pieces.items():
        got = per_token(quantity, pieces[0].astype(np.float64))
        want, kappa = wanted.values[quantity], wanted.kappa[quantity]
        u_out, floor = UNIT_ROUNDOFF["f32"], SMALLEST_NORMAL["f32"]
        found[quantity] = float(units(got, want, kappa, u_c=u, u_out=u_out, floor=floor).max())
    return found
