"""The FLOPs and bytes of a program, counted in what jax traced: for kernels, and for TPUs, whose compiler makes
convolutions of products.

FLOPs are those of matrix products (2 a multiply-add) and of triangular solves (n^2 a right-hand side), every loop and
grid as often as it runs; other products are refused, as is what jax does not see into. Bytes are what products and
solves read and write, and of a kernel the blocks that come and go instead: the traffic of a memory in which nothing
stays from one product to the next, everything elementwise being free.

Of a conditional the branch with the most FLOPs counts. What nobody uses is left out first, but for kernels in jax 0.10.
A block of a kernel counts as coming whenever a grid axis moves that its place depends on, which is at most what comes.
What is outside of every `shard_map` counts whole.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax._src.interpreters import partial_eval
from jax.extend import core

from parity.jaxprs import bare, inner

# Products and factorisations of other kinds, and what is computed elsewhere: 0 would be wrong.
_OTHERS = frozenset(
    (
        *("conv_general_dilated", "ragged_dot", "ragged_dot_general", "scaled_dot", "fft"),
        *("cholesky", "cholesky_update", "lu", "qr", "geqrf", "householder_product", "svd", "eig", "eigh", "schur"),
        *("hessenberg", "tridiagonal", "tridiagonal_solve", "custom_linear_solve"),
        *("pure_callback", "io_callback", "ffi_call"),
    )
)


class Uncountable(ValueError):
    """What is computed cannot be counted: the message names the primitive."""


@dataclass(frozen=True)
class Work:
    """Of one device."""

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, count: int) -> "Work":
        return Work(count * self.flops, count * self.bytes)


def work(function: Callable[..., Any], *arguments: Any) -> Work:
    """Of `function` for abstract or concrete arguments; inside a `shard_map`, of one device. Raises Uncountable."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    used, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _of(used)


def _of(jaxpr: core.Jaxpr) -> Work:
    return sum((_of_equation(equation) for equation in jaxpr.eqns), Work())


def _of_equation(equation: Any) -> Work:
    name, params = equation.primitive.name, equation.params
    match name:
        case "dot_general":
            return Work(_dot(equation), _traffic(equation))
        case "triangular_solve":
            size = equation.invars[0].aval.shape[-1]
            return Work(size * math.prod(equation.invars[1].aval.shape), _traffic(equation))
        case "pallas_call":
            return _kernel(params)
        case "scan":
            return _of(bare(params["jaxpr"])).times(params["length"])
        case "cond":
            return max((_of(bare(branch)) for branch in params["branches"]), key=lambda work: work.flops)
        case "while":
            found = sum((_of(each) for each in inner(params)), Work())
            if found.flops:
                raise Uncountable("a while loop has products inside, and does not say how often it runs")
            return found
        case _ if name in _OTHERS:
            raise Uncountable(f"{name} is not counted: matrix products, triangular solves and kernels of them are")
        case _:
            return sum((_of(each) for each in inner(params)), Work())


def _dot(equation: Any) -> int:
    a = equation.invars[0].aval.shape
    (contracted, _), _ = equation.params["dimension_numbers"]
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(a[axis] for axis in contracted)


def _traffic(equation: Any) -> int:
    return sum(_size(x.aval) for x in (*equation.invars, *equation.outvars))


def _size(aval: Any) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize


def _kernel(params: dict[str, Any]) -> Work:
    """Its products once a grid cell; each block as often as its place changes, the last axis of the grid fastest."""
    mapping = params["grid_mapping"]
    flops = _of(bare(params["jaxpr"])).flops * math.prod(mapping.grid)
    return Work(flops, sum(_block(block, mapping.grid) for block in mapping.block_mappings))


def _block(block: Any, grid: tuple[int, ...]) -> int:
    index = bare(block.index_map_jaxpr)
    moved_by = [
        axis for axis, variable in enumerate(index.invars[: len(grid)]) if grid[axis] > 1 and _depends(index, variable)
    ]
    comes = math.prod(grid[: max(moved_by, default=-1) + 1])
    sizes = [getattr(size, "block_size", size if isinstance(size, int) else 1) for size in block.block_shape]
    return comes * math.prod(sizes) * block.array_aval.dtype.itemsize


def _depends(jaxpr: core.Jaxpr, variable: Any) -> bool:
    """Whether any result depends on an argument."""
    reached = {variable}
    for equation in jaxpr.eqns:
        if reached & {x for x in equation.invars if not isinstance(x, core.Literal)}:
            reached |= set(equation.outvars)
    return any(x in reached for x in jaxpr.outvars if not isinstance(x, core.Literal))
