"""Ask an implementation: one compiled program gives both outputs and all six gradients."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import GRADIENTS, INPUTS, OUTPUTS, QUANTITIES
from parity.compilation import jit_for_few_runs
from parity.layouts import Layout, over
from parity.meshes import as_it_lies, copies_that_differ, per_rank, place, within
from parity.meshes import keywords as keywords_of_mesh
from parity.problem import Problem
from parity.shapes import Shape
from parity.x64 import x64

REPLICATED = ("initial_state", "dfinal_state", "final_state", "dh0")

# The input whose shape and dtype a quantity must have.
LIKE = dict(zip(QUANTITIES, ("v", "initial_state", *INPUTS), strict=True))

IN_VJP = " in vjp"

Program = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """`pieces[quantity]`: what each rank returned, as it is; `failures[quantity]`: why nothing can be measured.

    `in_vjp[output]`: the same output from the forward of `jax.vjp`: a `custom_vjp` has another than the plain call has.
    """

    pieces: dict[str, list[np.ndarray]]
    failures: dict[str, str]
    in_vjp: dict[str, list[np.ndarray]]


def run(implementation: Implementation, problem: Problem, layout: Layout | int) -> Answer:
    """The implementation's answer to `problem` over `layout`, or that many ranks. What it raises becomes the failure of
    what it cost.

    f64 runs with x64 on, f32 and bf16 with x64 off, as users run them. Raises MeshTooLarge.
    """
    with x64(problem.dtype == "f64"):
        lies = layout_of(implementation, layout)
        arguments = {n: place(x, lies, over_tokens=n not in REPLICATED) for n, x in problem.arguments.items()}
        like = {quantity: arguments[name] for quantity, name in LIKE.items()}
        documents = placed_documents(problem, lies)
        program = partial(_program, implementation, problem.dtype, problem.shape, lies)
        results, failures = _ask(implementation, program, tuple(arguments.values()), documents)
        given = problem.arguments | {name: cast(np.ndarray, problem.segment_ids) for name in documents}
        overwritten = [name for name, x in (arguments | documents).items() if not _is_still(x, name, given[name], lies)]
        if overwritten:  # nothing that was returned can be trusted: it may have been computed from other inputs
            failure = f"the call or its vjp has written to its arguments: {', '.join(overwritten)} must stay as given"
            return Answer({}, dict.fromkeys((name.removesuffix(IN_VJP) for name in (*results, *failures)), failure), {})
        pieces: dict[str, list[np.ndarray]] = {}
        for name, x in results.items():
            quantity = name.removesuffix(IN_VJP)
            violation = _violation(quantity, x, like[quantity], lies)
            if violation:
                failures[quantity] = violation
            else:
                pieces[name] = per_rank(x, lies, over_tokens=quantity not in REPLICATED)
    measured = {q: pieces[q] for q in QUANTITIES if q in pieces and q not in failures}
    in_vjp = {q: pieces[q + IN_VJP] for q in OUTPUTS if q + IN_VJP in pieces and q in measured}
    return Answer(measured, failures, in_vjp)


def placed_documents(problem: Problem, layout: Layout | None) -> dict[str, jax.Array]:
    """The keyword `segment_ids` of a call, none where a row is one document; its tokens lie as all others."""
    ids = problem.segment_ids
    return {} if ids is None else {"segment_ids": place(ids, layout, over_tokens=True)}


def _ask(
    implementation: Implementation,
    program: Callable[[bool], Program],
    arguments: tuple[jax.Array, ...],
    documents: dict[str, jax.Array],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Results and failures by quantity. Where gradients cannot be had, the outputs are asked for on their own."""
    failures: dict[str, str] = {}
    if "gradients" in implementation.supports:
        try:
            return jax.block_until_ready(program(True)(*arguments, **documents)), {}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest.skip and SystemExit too: a kernel does not decide whether it is judged
            failures = dict.fromkeys(GRADIENTS, _own_traceback(error))
    try:
        return jax.block_until_ready(program(False)(*arguments, **documents)), failures
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return {}, dict.fromkeys((*OUTPUTS, *failures), _own_traceback(error))  # the gradients fell with the call


@lru_cache(maxsize=8)
def _program(
    implementation: Implementation, dtype: Dtype, shape: Shape, layout: Layout | None, gradients: bool
) -> Program:
    """The function to run, compiled once for all regimes, and for all packings (`dtype` keeps apart what x64 makes
    different).
    """
    keywords = {"scale": shape.scale, "chunk_size": shape.chunk_size, **keywords_of_mesh(layout)}

    def checked(*inputs: jax.Array, **documents: jax.Array) -> tuple[Any, Any]:
        return _checked(implementation.call(*inputs, **keywords, **documents), 2, "call", "(o, final_state)")

    call = checked if layout is None or not layout.manual else within(layout, checked)

    def forward(*arguments: jax.Array, **documents: jax.Array) -> dict[str, Any]:
        return dict(zip(OUTPUTS, call(*arguments[:6], **documents), strict=True))

    def with_vjp_of_jax(*arguments: jax.Array, **documents: jax.Array) -> dict[str, Any]:
        outputs, pullback = jax.vjp(partial(call, **documents), *arguments[:6])
        for name, x, like in zip(OUTPUTS, outputs, (arguments[2], arguments[5]), strict=True):
            wrong = _wrong_form(name, x, like)
            if wrong:  # or jax says of the cotangents what is true of the outputs
                raise TypeError(wrong)
        in_vjp = {name + IN_VJP: x for name, x in zip(OUTPUTS, outputs, strict=True)}
        gradients = dict(zip(GRADIENTS, pullback(tuple(arguments[6:])), strict=True))
        return forward(*arguments, **documents) | in_vjp | gradients

    def with_vjp_of_the_record(*arguments: jax.Array, **documents: jax.Array) -> dict[str, Any]:
        gradients = implementation.vjp(*arguments, **keywords, **documents)  # type: ignore[misc]
        checked = _checked(gradients, 6, "vjp", "(dq, dk, dv, dg, dbeta, dh0)")
        return forward(*arguments, **documents) | dict(zip(GRADIENTS, checked, strict=True))

    function = forward if not gradients else with_vjp_of_jax if implementation.vjp is None else with_vjp_of_the_record
    return jit_for_few_runs(function) if implementation.traceable else function


def layout_of(implementation: Implementation, layout: Layout | int) -> Layout | None:
    """None where the implementation knows no mesh."""
    if not implementation.context_parallel:
        return None
    return over(layout) if isinstance(layout, int) else layout


def _checked(returned: Any, count: int, what: str, wanted: str) -> Any:
    if not isinstance(returned, tuple | list) or len(returned) != count:
        of = f" of {len(returned)}" if isinstance(returned, tuple | list) else ""
        raise TypeError(f"{what} must return the tuple {wanted}; it returned a {type(returned).__name__}{of}")
    for position, x in enumerate(returned):
        if not (isinstance(x, jax.Array) or type(x) in (np.ndarray, np.float64, np.float32)):
            raise TypeError(
                f"{what} must return jax or NumPy arrays {wanted}; element {position} is a {type(x).__name__}"
            )
    return tuple(returned)


def _violation(quantity: str, got: Any, like: jax.Array, layout: Layout | None) -> str | None:
    wrong = _wrong_form(quantity, got, like)
    if wrong:
        return wrong
    over_tokens = quantity not in REPLICATED
    differ = copies_that_differ(got, layout, over_tokens=over_tokens)
    if differ:
        what = "tokens of it" if over_tokens else "part of it for one rank"
        each = ", ".join(f"{first} and {other}" for first, other in differ[:4])
        more = f" and {len(differ) - 4} pairs more" if len(differ) > 4 else ""
        return f"{quantity}: devices that hold the same {what} do not agree: {each}{more}"
    return None


def _wrong_form(quantity: str, got: Any, like: jax.Array) -> str | None:
    """Nothing is cast and nothing is broadcast: a wrong dtype or shape is a wrong answer."""
    found, wanted = (tuple(got.shape), str(got.dtype)), (like.shape, str(like.dtype))
    if found == wanted:
        return None
    return f"{quantity} must be {wanted[1]}{list(wanted[0])}, like {LIKE[quantity]}; got {found[1]}{list(found[0])}"


def _is_still(x: jax.Array, name: str, given: np.ndarray, layout: Layout | None) -> bool:
    """Whether the argument `x` has the bits that were given, and has not been given away (donated)."""
    lies = given if name in REPLICATED else as_it_lies(given, layout)
    if x.is_deleted():
        return False
    return all(np.asarray(part.data).tobytes() == lies[part.index].tobytes() for part in x.addressable_shards)


def _own_traceback(error: BaseException) -> str:
    """What was raised, and where, without the frames of jax and of this file."""
    foreign = (str(Path(jax.__file__).parent), __file__, "<")  # "<": compiled on the fly by a type checker
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(foreign)]
    # By the traceback module, for an exception may raise where its text is asked for.
    raised = "".join(traceback.format_exception_only(error)).strip()
    return f"{raised}\n" + "".join(traceback.format_list(frames))
