"""kappa: how far a result moves when every input moves by one relative unit, each element on its own."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from oracles.segments import numbered, starts
from oracles.stream import Stream

PROBES = 8
STEP = 2.0**-20


def rms_response(
    function: Callable[..., tuple[np.ndarray, ...]],
    arguments: tuple[np.ndarray, ...],
    *,
    name: str,
    result: tuple[np.ndarray, ...] | None = None,
) -> tuple[np.ndarray, ...]:
    """The rms over probes of `(f(x (1 + STEP s)) - f(x)) / STEP`, s random signs: one array a result of `function`.

    To first order the square is the sum of the squared relative sensitivities to all elements of all arguments, so
    that `u * kappa` is the error to expect of code that commits an independent relative error of u in each. An exact
    zero is not perturbed. `name` seeds the signs; `result` is `function(*arguments)` where the caller has it.
    Source: section 6 of the design; Higham, "Accuracy and Stability of Numerical Algorithms", section 1.6.
    """
    base = function(*arguments) if result is None else result
    stream = Stream(f"conditioning/{name}")
    total = tuple(np.zeros_like(x) for x in base)
    for probe in range(PROBES):
        moved = tuple(x * (1 + STEP * stream.signs(f"{probe}/{i}", *x.shape)) for i, x in enumerate(arguments))
        total = tuple(
            np.hypot(sofar, (there - here) / STEP)
            for sofar, there, here in zip(total, function(*moved), base, strict=True)
        )
    return tuple(x / np.sqrt(PROBES) for x in total)


def decay_gradient_terms(
    arguments: dict[str, np.ndarray],
    values: dict[str, np.ndarray],
    *,
    window: int,
    segment_ids: Int[np.ndarray, "B T"] | None = None,
) -> np.ndarray:
    """The rms size of what a chunked backward adds up to get `dg`, `[B, T, Hv]`; it belongs to the kappa of dg.

    With G the cumulative g of a chunk, `dg_t` is the sum of `dG_i` over the rest of the chunk, plus a term at its end:

        dG_i = dg_i - dg_{i+1} = <do_i, o_i> - <dv_i, v_i>

    where a chunked backward also adds `beta_i dbeta_i` in one place and takes it off in another. The terms cancel, and
    what is left is `<dh~, h~>`, smaller by the decay itself. Each term carries its own rounding error, so the error of
    dg is absolute, however small dg is: at g = -20 a token correct f32 code has a relative error above 1. No
    perturbation of the inputs shows this, for it is the conditioning of the sum and not of the rule. `window` is the
    number of tokens in a chunk. Nothing is added up over the end of a document, and nothing at all where one begins:
    there dg is 0, for the decay is of no consequence.
    """
    squares = (
        np.sum((values["o"] * arguments["do"]) ** 2, axis=-1)
        + np.sum((values["dv"] * arguments["v"]) ** 2, axis=-1)
        + (values["dbeta"] * arguments["beta"]) ** 2
    )
    tokens = squares.shape[1]
    document = numbered(segment_ids, squares.shape[:2])[..., None]
    total = np.zeros_like(squares)
    for ahead in range(min(window, tokens)):
        same = document[:, ahead:] == document[:, : tokens - ahead]
        total[:, : tokens - ahead] += np.where(same, squares[:, ahead:], 0.0)
    return np.where(starts(segment_ids, squares.shape[:2])[..., None], 0.0, np.sqrt(total))
