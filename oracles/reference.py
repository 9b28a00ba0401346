"""All that the suite asks of the oracles about one problem: values, how far they may move, how sure they are."""

from functools import partial

import numpy as np
from jaxtyping import Int

from oracles.certify import certify
from oracles.conditioning import decay_gradient_terms, rms_response
from oracles.gated_delta_rule import INPUTS, QUANTITIES, float64

ARGUMENTS = (*INPUTS, "do", "dfinal_state")


def reference(
    arguments: dict[str, np.ndarray],
    *,
    scale: float | None,
    chunk_size: int,
    name: str,
    segment_ids: Int[np.ndarray, "B T"] | None = None,
) -> dict[str, np.ndarray]:
    """Flat, so that it can be stored; with `x` for each of the eight quantities:

    - `x`: the float64 oracle's value, in the shape of `float64.forward` or `float64.adjoint`.
    - `kappa x`: its rms response to random relative perturbations of every element of every argument and of every decay
      `exp(g)`, in the shape of `x`; for dg also what a chunk of `chunk_size` tokens sums to get it.
    - `bound x`: rigorous bounds of the oracle's own error on a sample of heads, as in `certify.Certificate`.
    - `sample`: its row, key head and bits.

    `arguments`: the six inputs, `do` and `dfinal_state`, in float64; `segment_ids`: of packed documents. `name` seeds
    the probes and the sample.
    """
    values, kappa = conditioned(arguments, scale=scale, chunk_size=chunk_size, name=name, segment_ids=segment_ids)
    found = certify(arguments, values, scale=scale, name=name, segment_ids=segment_ids)
    return (
        values
        | {f"kappa {quantity}": x for quantity, x in kappa.items()}
        | {f"bound {quantity}": x for quantity, x in found.bounds.items()}
        | {"sample": np.array([found.row, found.key_head, found.bits])}
    )


def conditioned(
    arguments: dict[str, np.ndarray],
    *,
    scale: float | None,
    chunk_size: int,
    name: str,
    segment_ids: Int[np.ndarray, "B T"] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """`(values, kappa)` by quantity, as in `reference`, and no certificate."""
    given = tuple(arguments[name] for name in ARGUMENTS)
    oracle = partial(float64.forward_and_adjoint, scale=scale, segment_ids=segment_ids)
    result = oracle(*given)
    values = dict(zip(QUANTITIES, result, strict=True))

    # exp(g) is rounded like everything else, and where g is near 0 no relative perturbation of g shows it: over many
    # tokens of weak decay it is what the rounding of the state in every step amounts to.
    def with_decays(*moved: np.ndarray) -> tuple[np.ndarray, ...]:
        q, k, v, g, *rest, decay = moved
        return oracle(q, k, v, g + np.log(decay), *rest)

    response = rms_response(with_decays, (*given, np.ones_like(arguments["g"])), name=name, result=result)
    kappa = dict(zip(QUANTITIES, response, strict=True))
    terms = decay_gradient_terms(arguments, values, window=chunk_size, segment_ids=segment_ids)
    kappa["dg"] = np.hypot(kappa["dg"], terms)
    return values, kappa
