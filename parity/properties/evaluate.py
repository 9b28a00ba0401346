"""Ask a subject for every quantity at once. One program serves all examples of the same sizes."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import QUANTITIES
from parity.compilation import jit_for_few_runs
from parity.layouts import over
from parity.meshes import keywords as keywords_of_mesh
from parity.meshes import place
from parity.properties.examples import Arguments
from parity.properties.sizes import shape_of
from parity.properties.subjects import Subject
from parity.run import LIKE, REPLICATED
from parity.shapes import Shape

Program = Callable[..., tuple[Any, ...]]


def evaluate(subject: Subject, arguments: Arguments, *, chunk_size: int, ranks: int) -> Arguments:
    """The eight quantities, as they came. Raises ValueError where one has not the shape and dtype of its input."""
    batch, tokens, key_heads, key_size = arguments["q"].shape
    value_heads, value_size = arguments["v"].shape[2:]
    shape = shape_of(batch, tokens, key_heads, value_heads, key_size, value_size, chunk_size)
    implementation = subject.implementation
    with jax.enable_x64(subject.dtype == "f64"):
        layout = over(ranks) if implementation.context_parallel else None
        given: list[Any] = [arguments[name] for name in shape.sizes()]
        if implementation.traceable:
            given = [place(arguments[n], layout, over_tokens=n not in REPLICATED) for n in shape.sizes()]
        found = program(implementation, subject.dtype, shape, ranks)(*given)
    results = {quantity: np.asarray(x) for quantity, x in zip(QUANTITIES, found, strict=True)}
    for quantity, x in results.items():
        like = arguments[LIKE[quantity]]
        if (x.shape, x.dtype) != (like.shape, like.dtype):
            wanted = f"{like.dtype}{list(like.shape)}, like {LIKE[quantity]}"
            raise ValueError(f"{quantity} must be {wanted}; got {x.dtype}{list(x.shape)}")
    return results


@lru_cache(maxsize=512)
def program(implementation: Implementation, dtype: Dtype, shape: Shape, ranks: int) -> Program:
    """Forward and vjp, compiled once (`dtype` keeps apart what x64 makes different)."""
    layout = over(ranks) if implementation.context_parallel else None
    keywords = {"scale": shape.scale, "chunk_size": shape.chunk_size, **keywords_of_mesh(layout)}

    def call(*inputs: Any) -> tuple[Any, ...]:
        return implementation.call(*inputs, **keywords)

    def everything(*arguments: Any) -> tuple[Any, ...]:
        if implementation.vjp is not None:
            return *call(*arguments[:6]), *implementation.vjp(*arguments, **keywords)
        outputs, pullback = jax.vjp(call, *arguments[:6])
        return *outputs, *pullback(tuple(arguments[6:]))

    return jit_for_few_runs(everything) if implementation.traceable else everything
