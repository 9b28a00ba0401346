"""Every implementation and kernel, forward and backward, is taken by the compiler of every chip, at the sizes of
Qwen3-Next and Qwen3.5: K = V = 128, 16 key heads, 32 and 64 value heads, chunks of 64 and 128, bf16.

The whole product with the least effort of XLA, for its speed; Mosaic knows one effort only. And every implementation on
every chip as it is used, at the largest of the sizes.
"""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import SingleDeviceSharding

from implementations import ALL, VARIANTS
from implementations.contract import Implementation
from parity.shapes import Shape
from parity.tpu.ahead import LEAST, Rejected, compile_call, compile_for, effort
from parity.tpu.kernels import KERNELS
from parity.tpu.slices import CHIPS, devices

pytestmark = pytest.mark.tpu_aot

RANKS = 4
KEY_HEADS, VALUE_HEADS, CHUNKS = 16, (32, 64), (64, 128)

each_chip = pytest.mark.parametrize("chip", CHIPS)
each_size = pytest.mark.parametrize(
    ("value_heads", "chunk"), [(h, c) for h in VALUE_HEADS for c in CHUNKS], ids=lambda n: str(n)
)
each_implementation = pytest.mark.parametrize(
    "implementation", [*ALL, *VARIANTS], ids=lambda x: x.name.replace("_", " ")
)


def compiled(implementation: Implementation, chip: str, value_heads: int, chunk: int):
    """For one chip, or for a mesh of four; four chunks a device. What is compiled must hold its inputs, at least."""
    ranks = RANKS if implementation.context_parallel else 1
    shape = Shape("", 1, 4 * chunk * ranks, KEY_HEADS, value_heads, 128, 128, chunk)
    dtype = "bf16" if "bf16" in implementation.arithmetic else "f32"
    program = compile_call(implementation, chip, shape, dtype, ranks=ranks)
    memory = program.memory_analysis()
    tokens = shape.T // ranks
    inputs = tokens * 128 * 2 * (2 * KEY_HEADS + value_heads) + value_heads * 4 * (2 * tokens + 128 * 128)
    assert memory.argument_size_in_bytes >= inputs
    return program


@each_chip
@each_size
@each_implementation
def test_an_implementation_compiles(implementation, chip, value_heads, chunk):
    with effort(LEAST):
        compiled(implementation, chip, value_heads, chunk)


@each_chip
@each_implementation
def test_an_implementation_compiles_as_it_is_used(implementation, chip):
    program = compiled(implementation, chip, VALUE_HEADS[-1], CHUNKS[-1])
    assert ("tpu_custom_call" in program.as_text()) == ("pallas" in implementation.name)


@each_chip
@each_size
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_compiles(kernel, chip, value_heads, chunk):
    compile_for(chip, kernel.name, kernel.call, *kernel.arguments(value_heads, chunk, devices(chip, 1)[0]))


# What a compiler does not take is said to be so, of which chip and of which kernel.


def kernel_that(body, scratch=()):
    def program(x):
        return pl.pallas_call(
            body, name="planted", out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_shapes=scratch
        )(x)

    return program


def too_large(x, out, scratch):
    scratch[...] = jnp.zeros_like(scratch)
    out[...] = x[...] + scratch[0]


def unknown_to_mosaic(x, out):
    out[...] = jnp.sort(x[...], axis=0)


@each_chip
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (kernel_that(too_large, [pltpu.VMEM((4096, 128, 128), jnp.float32)]), "exceed|vmem"),
        (kernel_that(unknown_to_mosaic), "sort"),
    ],
    ids=["memory", "primitive"],
)
def test_what_is_rejected_is_named(program, reason, chip):
    x = jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=SingleDeviceSharding(devices(chip, 1)[0]))
    with pytest.raises(Rejected, match=rf"(?s){chip} does not take mine, kernel planted: .*({reason})"):
        compile_for(chip, "mine", program, x)
