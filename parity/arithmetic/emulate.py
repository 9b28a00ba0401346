"""Run any jax function once more with the products of a matrix unit, by walking its jaxpr."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import linear_util
from jax._src.interpreters import partial_eval
from jax.extend import core

from parity.arithmetic.passes import Policy, dot_in_passes, passes
from parity.jaxprs import inner


class CannotEnter(NotImplementedError):
    """A primitive with products inside that the walk does not know how to enter; the message names it."""


def emulate(function: Callable[..., Any], policy: Policy = "as_written") -> Callable[..., Any]:
    """`function`, with every `dot_general` of f32 operands computed as a TPU's matrix unit would.

    `policy`: the passes that each product asks for (`as_written`: one for `DEFAULT`, three for `HIGH`, six for
    `HIGHEST`), those of one precision for all (`default`, `high`, `highest`), or `identity`, which changes no bit.
    Products inside scan, while, cond, jit, checkpoint, custom derivatives, shard_map and Pallas kernels are reached.
    Other operands than f32 are left alone: of bf16 a product is exact in one pass, and a TPU has no f64.

    Differentiate first and emulate the gradient, `emulate(jax.grad(f))`: a custom derivative is known only then.
    What is returned takes arrays, and can be jitted. Raises CannotEnter.
    """
    passes(policy, None)

    def emulated(*arguments: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = _walk(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), policy)
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return emulated


def _walk(jaxpr: core.Jaxpr, consts: Sequence[Any], arguments: Sequence[Any], policy: Policy) -> list[Any]:
    """Evaluate, one equation after the other."""
    known: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def value(x: Any) -> Any:
        return x.val if isinstance(x, core.Literal) else known[x]

    for equation in jaxpr.eqns:
        operands = [value(x) for x in equation.invars]
        found = _evaluate(equation, operands, policy)
        known |= dict(zip(equation.outvars, found, strict=True))
    return [value(x) for x in jaxpr.outvars]


def _evaluate(equation: Any, operands: Sequence[Any], policy: Policy) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        return [_dot(operands, params, policy)]
    if name in _ENTER:
        return list(_ENTER[name](equation, operands, policy))
    if any(_multiplies(each) for each in inner(params)):
        raise CannotEnter(f"{name} has products inside, and parity.arithmetic.emulate does not know how to enter it")
    found = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
    return list(found) if equation.primitive.multiple_results else [found]


def _dot(operands: Sequence[Any], params: dict[str, Any], policy: Policy) -> Any:
    a, b = operands
    count = passes(policy, params["precision"])
    if count is None or not a.dtype == b.dtype == jnp.float32:
        return jax.lax.dot_general_p.bind(a, b, **params)
    found = dot_in_passes(a, b, count, dimension_numbers=params["dimension_numbers"])
    preferred = params["preferred_element_type"]
    return found if preferred is None else found.astype(preferred)


def _multiplies(jaxpr: core.Jaxpr) -> bool:
    return any(e.primitive.name == "dot_general" or any(map(_multiplies, inner(e.params))) for e in jaxpr.eqns)


def _of(jaxpr: Any, policy: Policy) -> Callable[..., list[Any]]:
    """A jaxpr, closed or bare, as a function of its arguments."""
    bare, consts = (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, core.ClosedJaxpr) else (jaxpr, ())
    return lambda *arguments: _walk(bare, consts, arguments, policy)


def _replaced(equation: Any, operands: Sequence[Any], policy: Policy) -> Any:
    """The same primitive with the same parameters, but for the jaxprs in them: of these the products are replaced."""
    params = {name: _rewritten(x, policy) for name, x in equation.params.items()}
    found = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(params))
    return found if equation.primitive.multiple_results else [found]


def _rewritten(x: Any, policy: Policy) -> Any:
    """`x` itself where it holds no jaxpr."""
    if isinstance(x, tuple):
        return tuple(_rewritten(y, policy) for y in x) if any(hasattr(y, "eqns") for y in x) else x
    if not hasattr(x, "eqns"):
        return x
    jaxpr, consts = _traced(_of(x, policy), x.jaxpr if isinstance(x, core.ClosedJaxpr) else x)
    if isinstance(x, core.ClosedJaxpr):
        return core.ClosedJaxpr(jaxpr, consts)
    if consts:
        raise CannotEnter("a jaxpr that has no place for the arrays that it closes over")
    return jaxpr


def _traced(function: Callable[..., list[Any]], like: core.Jaxpr) -> tuple[core.Jaxpr, list[Any]]:
    """The jaxpr of `function` for arguments like those of `like`: arrays, or a kernel's references to memory.

    By what jax's own transformations use, for `jax.make_jaxpr` takes no references.
    """
    wrapped = linear_util.wrap_init(function, debug_info=like.debug_info)
    jaxpr, _, consts, *_ = partial_eval.trace_to_jaxpr_dynamic(wrapped, [x.aval for x in like.invars])
    return jaxpr, consts


def _in_a_kernel(equation: Any, operands: Sequence[Any], policy: Policy) -> Any:
    """Where the grid is known, for a kernel asks where in it it is."""
    with equation.params["grid_mapping"].trace_env():
        return _replaced(equation, operands, policy)


def _over_ranks(equation: Any, operands: Sequence[Any], policy: Policy) -> Any:
    """What is inside a `shard_map` can be traced inside one only."""
    params = equation.params
    return jax.shard_map(
        lambda *x: tuple(_of(params["jaxpr"], policy)(*x)),
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        axis_names=set(params["newly_manual_axes"]),
        check_vma=params["check_vma"],
    )(*operands)


def _as_called(equation: Any, operands: Sequence[Any], policy: Policy) -> Any:
    """A custom derivative has been taken by now, or is not asked for."""
    return _of(equation.params["call_jaxpr"], policy)(*operands)


_ENTER: dict[str, Callable[[Any, Sequence[Any], Policy], Any]] = {
    **dict.fromkeys(("jit", "pjit", "remat2", "checkpoint", "cond", "while", "scan"), _replaced),
    **dict.fromkeys(("closed_call", "custom_jvp_call", "custom_vjp_call"), _as_called),
    "shard_map": _over_ranks,
    "pallas_call": _in_a_kernel,
}
