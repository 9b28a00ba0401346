"""What jax has traced, to be walked: the jaxprs inside an equation."""

from collections.abc import Iterator
from typing import Any

from jax.extend import core


def inner(params: dict[str, Any]) -> list[core.Jaxpr]:
    """The jaxprs in the parameters of an equation, bare."""
    candidates = [y for x in params.values() for y in (x if isinstance(x, tuple | list) else (x,))]
    return [bare(x) for x in candidates if hasattr(x, "eqns")]


def bare(jaxpr: Any) -> core.Jaxpr:
    """Of a closed one what it closes."""
    return jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr


def kernels(jaxpr: Any) -> tuple[str, ...]:
    """The names of the Pallas kernels that are called, each once."""
    return tuple(dict.fromkeys(_kernels(bare(jaxpr))))


def _kernels(jaxpr: core.Jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield str(equation.params["name"])
        else:
            for each in inner(equation.params):
                yield from _kernels(each)
