"""The first stage of an implementation that leaves its oracle, where it exposes its stages."""

from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Float

from implementations.contract import STAGES, Dtype
from oracles.conditioning import rms_response
from oracles.gated_delta_rule import INPUTS
from oracles.gated_delta_rule.stages import STAGES as IN_ORDER
from oracles.gated_delta_rule.stages import stages as oracle
from parity.compilation import jit_for_few_runs
from parity.matrix import Case
from parity.meshes import keywords, place
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.run import REPLICATED, placed_documents
from parity.unit import in_units
from parity.verdict import Verdict

_OF_RANKS = ("A", "B", "entering_rank")
_ROWS_ARE_TOKENS = ("S", "T", "w", "u")

Stages = dict[str, np.ndarray]


class BadStages(Exception):
    """What `Implementation.stages` returned is not what its contract says."""


def read(verdict: Verdict) -> str:
    """The first wrong stage and the right ones before it; empty where none are exposed. Raises BadStages."""
    case = verdict.case
    if case.implementation.stages is None:
        return ""
    units = stage_units(case)
    limit = verdict.findings[0, "final_state"].limit  # that of the arithmetic: stages are not rounded to outputs
    right: list[str] = []
    for name, found in units.items():
        worst = float(found.max())
        if not worst <= limit:
            before = f"; {_listed(right)} before it {'are' if len(right) > 1 else 'is'} right" if right else ""
            return f"    the first stage that is wrong: {name}, {_where(name, found, limit)}{before}"
        right.append(name)
    return f"    {_listed(right)} {'are' if len(right) > 1 else 'is'} right: what is wrong comes after the stages"


def stage_units(case: Case) -> dict[str, Float[np.ndarray, "R N B H"]]:
    """Units of each exposed stage, in computing order, per rank, chunk (one, of what belongs to a rank), row and head.

    Raises BadStages where the stages cannot be read, and whatever `stages` raises.
    """
    found, (wanted, kappa) = _ask(case), _oracle(case)
    arithmetic = cast(Dtype, case.implementation.arithmetic[case.problem.dtype])
    u, floor = UNIT_ROUNDOFF[arithmetic], SMALLEST_NORMAL[arithmetic]
    units = {}
    for name in (name for name in IN_ORDER if name in found):
        got, want, response = (_real_tokens(case, name, x[name]) for x in (found, wanted, kappa))
        with np.errstate(over="ignore", invalid="ignore"):
            error = got - want
        finite = np.isfinite(error)
        flat = [_flat(x) for x in (np.where(finite, error, 0.0), want, response)]
        measured = in_units(*flat, u_c=u, u_out=u, floor=floor, block=1)
        units[name] = np.where(_flat(~finite).any(axis=3), np.inf, measured)[:, 0].reshape(_leading(name, got))
    return units


def _ask(case: Case) -> Stages:
    """The implementation's own stages, as float64."""
    implementation, shape = case.implementation, case.problem.shape
    layout = case.layout if implementation.context_parallel else None
    with jax.enable_x64(case.problem.dtype == "f64"):
        inputs = [place(case.problem.arguments[n], layout, over_tokens=n not in REPLICATED) for n in INPUTS]
        documents = placed_documents(case.problem, layout)

        def call(*inputs: jax.Array) -> Any:
            return implementation.stages(  # type: ignore[misc]
                *inputs, scale=shape.scale, chunk_size=shape.chunk_size, **keywords(layout), **documents
            )

        returned = (jit_for_few_runs(call) if implementation.traceable else call)(*inputs)
        _check(case, returned)
        return {name: np.asarray(x).astype(np.float64) for name, x in returned.items()}


def _check(case: Case, returned: Any) -> None:
    """Raise BadStages unless `returned` is a mapping of known stages in their shapes."""
    if not isinstance(returned, Mapping) or not returned or not returned.keys() <= STAGES.keys():
        what = sorted(map(str, returned)) if isinstance(returned, Mapping) else type(returned).__name__
        raise BadStages(f"stages must return a dict with any of {', '.join(STAGES)}; it returned {what}")
    shape = case.problem.shape
    chunks = -(-(shape.T // case.ranks) // shape.chunk_size)
    sizes = {"R": case.ranks, "N": chunks, "B": shape.B, "Hv": shape.Hv, "C": shape.chunk_size}
    sizes |= {"K": shape.K, "V": shape.V}
    for name, x in returned.items():
        wanted = tuple(sizes[axis] for axis in STAGES[name].split())
        if np.shape(x) != wanted:
            raise BadStages(f"stage {name} must be [{STAGES[name]}] = {list(wanted)}; it is {list(np.shape(x))}")


def _oracle(case: Case) -> tuple[Stages, Stages]:
    """The values and kappa of every stage; every decay moves too, as in `oracles.reference`."""
    q, k, v, g, beta, h0 = (case.problem.arguments[name].astype(np.float64) for name in INPUTS)

    def function(*moved: np.ndarray) -> tuple[np.ndarray, ...]:
        q, k, v, g, beta, h0, decay = moved
        g, chunk_size = g + np.log(decay), case.problem.shape.chunk_size
        documents = case.problem.segment_ids
        return oracle(q, k, v, g, beta, h0, ranks=case.ranks, chunk_size=chunk_size, segment_ids=documents)

    given = (q, k, v, g, beta, h0, np.ones_like(g))
    values = function(*given)
    kappa = rms_response(function, given, name=f"stages/{case.problem.name}", result=values)
    return dict(zip(IN_ORDER, values, strict=True)), dict(zip(IN_ORDER, kappa, strict=True))


def _real_tokens(case: Case, name: str, x: np.ndarray) -> np.ndarray:
    """Zero where a last chunk is padded: what stands there is nobody's business."""
    if name not in _ROWS_ARE_TOKENS:
        return x
    chunk_size, tokens = case.problem.shape.chunk_size, case.problem.shape.T // case.ranks
    real = np.arange(x.shape[1] * chunk_size).reshape(-1, chunk_size) < tokens
    real = real[None, :, None, None, :, None]
    if name in ("S", "T"):
        real = real & np.swapaxes(real, -1, -2)
    return np.where(real, x, 0.0)


def _flat(x: np.ndarray) -> np.ndarray:
    """One block for each matrix: `[R N B, 1, Hv, rows columns]`."""
    *leading, heads, rows, columns = x.shape
    return x.reshape(int(np.prod(leading)), 1, heads, rows * columns)


def _leading(name: str, x: np.ndarray) -> tuple[int, ...]:
    """R, N, B and Hv, with N = 1 of what belongs to a rank."""
    return (x.shape[0], 1, *x.shape[1:3]) if name in _OF_RANKS else x.shape[:4]


def _where(name: str, units: Float[np.ndarray, "R N B H"], limit: float) -> str:
    """The first place in sequence order, and how much is wrong."""
    over = ~(units <= limit)
    rank, chunk, row, head = np.argwhere(over)[0]
    of_chunk = "" if name in _OF_RANKS else f"chunk {chunk}, "
    what = "ranks, rows and heads" if name in _OF_RANKS else "ranks, chunks, rows and heads"
    return (
        f"from rank {rank}, {of_chunk}row {row}, head {head} on: {units[rank, chunk, row, head]:.3g} units there, "
        f"{units.max():.3g} at worst, over the limit of {limit:g} in {over.sum()} of {over.size} {what}"
    )


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
