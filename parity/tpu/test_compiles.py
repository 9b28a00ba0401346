"""Every implementation and kernel, forward and backward, is taken by the compiler of every chip, at the sizes of
Qwen3-Next and Qwen3.5: K = V = 128, 16 key heads, 32 and 64 value heads, chunks of 64 and 128, bf16.

Kernels, and what has them in it, meet both numbers of heads with both chunks on every chip, for VMEM may do for one and
not for another. What is XLA's alone meets the smallest sizes on one half of the chips and the largest on the other,
implementations but variants the largest on all. These with the least effort of XLA, for its speed: Mosaic knows one
effort only. At the largest sizes implementations are also compiled as they are used, on the chip of the least memory,
and variants that are programs of their own on the one of `test_long`, which has least_memory so.
"""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import SingleDeviceSharding

from implementations import ALL, VARIANTS
from implementations.context_parallel.least_work import LEAST_WORK
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.contract import Implementation
from parity.shapes import Shape
from parity.tpu.ahead import LEAST, Rejected, compile_call, compile_for, effort
from parity.tpu.kernels import KERNELS
from parity.tpu.slices import CHIPS, devices

pytestmark = pytest.mark.tpu_aot

RANKS = 4
KEY_HEADS, VALUE_HEADS, CHUNKS = 16, (32, 64), (64, 128)

ALL_SIZES = tuple((heads, chunk) for heads in VALUE_HEADS for chunk in CHUNKS)
LARGEST = ALL_SIZES[-1]


def has_kernels(implementation: Implementation) -> bool:
    return implementation.name.startswith("pallas")


# Variants that are more than parts of others, put together in another way.
OF_THEIR_OWN = [x for x in VARIANTS if has_kernels(x) or x in (LEAST_WORK, LOAD_BALANCED)]
AS_USED = [*((x, "v5e") for x in ALL), *((x, "v5p") for x in OF_THEIR_OWN)]


def sizes(implementation: Implementation, chip: str) -> tuple[tuple[int, int], ...]:
    if has_kernels(implementation):
        return ALL_SIZES
    if chip not in CHIPS[::2]:
        return (LARGEST,)
    return (ALL_SIZES[0], LARGEST) if implementation in ALL else (ALL_SIZES[0],)


def programs():
    """What is compiled with the least effort: each implementation, the chip and the sizes."""
    for implementation in (*ALL, *VARIANTS):
        for chip in CHIPS:
            for size in sizes(implementation, chip):
                if (implementation, chip) not in AS_USED or size != LARGEST:
                    name = implementation.name.replace("_", " ")
                    yield pytest.param(
                        implementation, chip, *size, id=f"{name}, {chip}, {size[0]} heads, chunk {size[1]}"
                    )


each_chip = pytest.mark.parametrize("chip", CHIPS)


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


@pytest.mark.parametrize(("implementation", "chip", "value_heads", "chunk"), [*programs()])
def test_an_implementation_compiles(implementation, chip, value_heads, chunk):
    with effort(LEAST):
        compiled(implementation, chip, value_heads, chunk)


@pytest.mark.parametrize(
    ("implementation", "chip"),
    [pytest.param(x, chip, id=f"{x.name.replace('_', ' ')}, {chip}") for x, chip in AS_USED],
)
def test_an_implementation_compiles_as_it_is_used(implementation, chip):
    program = compiled(implementation, chip, *LARGEST)
    assert ("tpu_custom_call" in program.as_text()) == has_kernels(implementation)


@each_chip
@pytest.mark.parametrize(("value_heads", "chunk"), ALL_SIZES)
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


def test_arguments_must_lie_on_the_chip():
    for sharding in (None, SingleDeviceSharding(devices("v6e", 1)[0])):
        with pytest.raises(ValueError, match="mine is to be compiled for v5e, and an argument lies on"):
            compile_for("v5e", "mine", lambda x: x + 1, jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding))


def test_what_cannot_be_traced_is_no_rejection():
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=SingleDeviceSharding(devices("v5e", 1)[0]))
    with pytest.raises(KeyError):
        compile_for("v5e", "mine", lambda x: {}["mine"], x)


def test_what_no_tpu_has_is_said():
    with pytest.raises(ValueError, match="no f64"):
        compile_call(ALL[0], "v5e", Shape("", 1, 64, 2, 2, 8, 8, 16), "f64")
    with pytest.raises(ValueError, match="must be one of v5e, v5p, v6e, tpu7x"):
        devices("v4", 1)


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
