"""What the layer answers, per rank: outputs and all gradients, of one program."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np

from implementations.causal_conv import causal_conv
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
    """The layer around a rule, on one device or with tokens over `ranks`; `layer` and `convolution` may be mistaken."""

    name: str
    rule: Callable[..., Any]
    ranks: int | None = None
    layer: Layer = gated_delta_net
    convolution: Callable[..., Any] = causal_conv

    @property
    def layout(self) -> Layout | None:
        return None if self.ranks is None else over(self.ranks)

    def call(self) -> Layer:
        """`(parameters, x, conv_state, recurrent_state)`, and `segment_ids` where there are any."""
        mesh = {} if self.ranks is None else {"mesh": context_mesh(self.ranks), "axes": AXES}
        rule = partial(self.rule, chunk_size=CHUNK_SIZE, **mesh)
        return partial(self.layer, rule=rule, convolution=partial(self.convolution, **mesh))


AROUND = {
    around.name: around
    for around in (
        Around("sequential", sequential),
        Around("chunked", chunked),
        Around("pallas", partial(PALLAS.call)),
        Around("fold_4ranks", two_phase, 4, convolution=halo_conv),
        Around("local_pass_4ranks", three_phase, 4, convolution=halo_conv),
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
    """What each rank holds of each quantity."""
    given, ids = arguments(problem), problem.segment_ids
    with jax.enable_x64(problem.dtype == "f64"):
        placed = {name: place(given[name], around.layout, over_tokens=name in OF_TOKENS) for name in ARGUMENTS}
        documents = {} if ids is None else {"segment_ids": place(ids, around.layout, over_tokens=True)}
        found = _program(around, problem.dtype)(placed, documents)
        return {
            name: per_rank(x, around.layout, over_tokens=name in OF_TOKENS)
            for name, x in zip(QUANTITIES, found, strict=True)
        }


@cache
def findings(around: Around, problem: Problem) -> dict[str, Finding]:
    """Of one run, whatever is then asked of it."""
    return judged(problem, answer(around, problem))
