"""What the layer answers, per rank: outputs and all gradients, of one program."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np

from implementations.chunked import chunked
from implementations.context_parallel.halo_conv import halo_conv
from implementations.context_parallel.three_phase import three_phase
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import Dtype
from implementations.layer import gated_delta_net
from implementations.pallas.composition import PALLAS
from implementations.sequential import sequential
from oracles.gated_delta_net import ARGUMENTS, CONVOLVED, PARAMETERS, QUANTITIES, cotangents_of, flattened, inputs_of
from parity.compilation import jit_for_few_runs
from parity.layer.measure import Finding, Pieces, judged
from parity.layer.problem import CHUNK_SIZE, OF_TOKENS, Problem, arguments
from parity.layouts import AXES, Layout, over
from parity.meshes import context_mesh, per_rank, place

Layer = Callable[..., tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Around:
    """The layer around a rule, on one device or with tokens over `ranks`; `layer` and `convolution` may be mistaken.

    `convolution`: that over ranks. On one device the layer has its own.
    """

    name: str
    rule: Callable[..., Any]
    ranks: int | None = None
    layer: Layer = gated_delta_net
    convolution: Callable[..., Any] = halo_conv

    @property
    def layout(self) -> Layout | None:
        return None if self.ranks is None else over(self.ranks)

    def call(self) -> Layer:
        """`(parameters, x, conv_state, recurrent_state)`, and `segment_ids` where there are any."""
        if self.ranks is None:
            return partial(self.layer, rule=partial(self.rule, chunk_size=CHUNK_SIZE))
        mesh = {"mesh": context_mesh(self.ranks), "axes": AXES}
        rule, convolution = partial(self.rule, chunk_size=CHUNK_SIZE, **mesh), partial(self.convolution, **mesh)
        return partial(self.layer, rule=rule, convolution=convolution)


AROUND = {
    around.name: around
    for around in (
        Around("sequential", sequential),
        Around("chunked", chunked),
        Around("pallas", PALLAS.call),
        Around("fold_4ranks", two_phase, 4),
        Around("local_pass_4ranks", three_phase, 4),
    )
}


@cache
def _program(around: Around, dtype: Dtype) -> Callable[..., tuple[Any, ...]]:
    """Both outputs and all gradients; `dtype` keeps apart what x64 makes different."""

    def outputs_and_gradients(given: dict[str, jax.Array], documents: dict[str, jax.Array]) -> tuple[Any, ...]:
        x, parameters, conv_state, recurrent_state = inputs_of(given)  # type: ignore[arg-type]
        call = partial(around.call(), **documents)
        outputs, pullback = jax.vjp(call, parameters, x, conv_state, recurrent_state)
        dparameters, dx, *dstates = pullback(cotangents_of(given))  # type: ignore[arg-type]
        return *_in_order(outputs), *_in_order((dx, dparameters, *dstates))

    return jit_for_few_runs(outputs_and_gradients)


def _in_order(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """`flattened`, of dicts that jax has sorted."""

    def ordered(x: Any) -> Any:
        return {name: x[name] for name in (*PARAMETERS, *CONVOLVED) if name in x} if isinstance(x, dict) else x

    return flattened(tuple(map(ordered, results)))


def answer(around: Around, problem: Problem) -> Pieces:
    """What each rank holds of each quantity; where there is padding, of the real tokens.

    Raises ValueError where y or dx is not 0 at padding.
    """
    given, documents = arguments(problem), keywords(problem)
    if problem.mask is not None:
        given |= {name: padded(given[name], problem.mask, np.nan) for name in OF_TOKENS if name in given}
    with jax.enable_x64(problem.dtype == "f64"):
        placed = {name: place(given[name], around.layout, over_tokens=name in OF_TOKENS) for name in ARGUMENTS}
        placed_documents = {name: place(x, around.layout, over_tokens=True) for name, x in documents.items()}
        found = dict(zip(QUANTITIES, _program(around, problem.dtype)(placed, placed_documents), strict=True))
        pieces = {name: per_rank(x, around.layout, over_tokens=name in OF_TOKENS) for name, x in found.items()}
    if problem.mask is not None:
        for name in ("y", "dx"):
            pieces[name] = [_real(name, x, problem.mask) for x in pieces[name]]
    return pieces


def keywords(problem: Problem) -> dict[str, np.ndarray]:
    """What the layer is told of documents and padding. The ids of padding are such as no document has."""
    ids, mask = problem.segment_ids, problem.mask
    if mask is None:
        return {} if ids is None else {"segment_ids": ids}
    return {"mask": mask} | ({} if ids is None else {"segment_ids": padded(ids, mask, 99)})


def padded(x: np.ndarray, mask: np.ndarray, fill: float) -> np.ndarray:
    """`x [B, T, ...]` with `fill` wherever the mask is False."""
    spread = np.full((*mask.shape, *x.shape[2:]), fill, x.dtype)
    spread[mask] = x.reshape(-1, *x.shape[2:])
    return spread


def _real(name: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    if np.any(x[~mask] != 0):
        raise ValueError(f"{name} must be 0 at padding; got {x[~mask].ravel()[:4]}")
    return x[mask].reshape(mask.shape[0], -1, *x.shape[2:])


@cache
def findings(around: Around, problem: Problem) -> dict[str, Finding]:
    """Of one run, whatever is then asked of it."""
    return judged(problem, answer(around, problem))
