"""Compilation for TPUs ahead of time: on any machine with libtpu, by the compiler that a TPU's machine has."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from implementations.contract import Dtype, Implementation
from implementations.pallas.interpreter import compiled
from parity.compiled.programs import abstract, outputs_and_gradients
from parity.jaxprs import kernels
from parity.layouts import Layout, over
from parity.meshes import keywords
from parity.shapes import Shape
from parity.tpu.slices import devices

# Of XLA's effort. Mosaic, and the limits of a kernel's memory, know one only.
LEAST = "O0"
_EFFORT = "jax_optimization_level"

_VMEM = re.compile(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"')


class Rejected(Exception):
    """A compiler does not take a program: it says of which chip, which program and, where it is one, which kernel."""


def compile_call(
    implementation: Implementation,
    chip: str,
    shape: Shape,
    dtype: Dtype = "bf16",
    *,
    ranks: Layout | int = 1,
) -> Any:
    """The outputs and all gradients as one program, for that many devices of `chip`.

    Raises Rejected, and ValueError for f64, which no TPU has.
    """
    if dtype == "f64":
        raise ValueError("a TPU has no f64; compile for f32 or bf16")
    layout = over(ranks) if isinstance(ranks, int) else ranks
    those = devices(chip, layout.devices)
    arrays = abstract(shape, dtype, layout, those)
    told = {"scale": shape.scale, "chunk_size": shape.chunk_size}
    if implementation.context_parallel:
        told |= keywords(layout, those)
    call = functools.partial(implementation.call, **told)
    return compile_for(chip, implementation.name, outputs_and_gradients(call), arrays[:6], arrays[6:])


def compile_for(chip: str, name: str, program: Callable[..., Any], *arguments: Any) -> Any:
    """`program` for abstract arguments that lie on devices of `chip`, its kernels by Mosaic.

    Raises Rejected where the compiler does not take it, what `program` itself raises where it cannot be traced, and
    ValueError where an argument lies elsewhere.
    """
    kind = devices(chip, 1)[0].device_kind
    for x in jax.tree.leaves(arguments):
        on = {device.device_kind for device in x.sharding.device_set} if x.sharding is not None else {"no device"}
        if on != {kind}:
            raise ValueError(f"{name} is to be compiled for {chip}, and an argument lies on {', '.join(sorted(on))}")
    with compiled():
        traced = jax.jit(program).trace(*arguments)
        try:
            return traced.lower().compile()
        except Exception as error:  # whatever the compiler raises
            text, names = str(error), kernels(traced.jaxpr)
            concerned = [kernel for kernel in names if kernel in text] or list(names)
            of = f", kernel {' or '.join(concerned)}" if concerned else ""
            raise Rejected(f"{chip} does not take {name}{of}: {type(error).__name__}: {text}") from error


@contextmanager
def effort(level: str) -> Iterator[None]:
    """What is compiled inside is optimised by XLA as `level` says: with the `LEAST` in a fifth of the time."""
    before = getattr(jax.config, _EFFORT)
    jax.config.update(_EFFORT, level)
    try:
        yield
    finally:
        jax.config.update(_EFFORT, before)


def vmem(program: str, kernel: str) -> int:
    """Bytes of VMEM that a Pallas kernel of an optimised HLO module takes, at most, by its name; 0 where it is not."""
    found = [0]
    for line in program.splitlines():
        name, _, call = line.partition(" = ")
        if kernel in name and 'custom_call_target="tpu_custom_call"' in call:
            found += [int(size) for size in _VMEM.findall(call)]
    return max(found)
