"""What the interpreter of TPUs sees, and plain interpretation may not: each is planted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from implementations.pallas.interpreter import RACES_ARE_ERRORS, compiled, interpreted_as_on_a_tpu, is_interpreted

BLOCK = pl.BlockSpec((8, 128), lambda i: (i, 0))
X = np.ones((16, 128), np.float32)


def call(kernel, **keywords):
    program = pl.pallas_call(
        kernel,
        grid=(2,),
        in_specs=[BLOCK],
        out_specs=BLOCK,
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        interpret=is_interpreted(),
        **keywords,
    )
    return np.asarray(jax.jit(program)(X))


def test_a_kernel_is_interpreted_on_a_cpu_and_compiled_where_that_is_asked():
    assert is_interpreted()
    with compiled():
        assert not is_interpreted()
        with pytest.raises(ValueError, match=r"[Ii]nterpret mode"):
            call(lambda x, y: y.__setitem__(..., x[...]))
    assert is_interpreted()


def test_what_was_traced_to_be_interpreted_is_traced_again_to_be_compiled():
    """And back: of one function that jit knows already."""

    @jax.jit
    def function(x):
        modes.append(is_interpreted())
        return x

    modes = []
    function(X)
    with compiled():
        function(X)
    with interpreted_as_on_a_tpu():
        function(X)
    function(X)
    assert modes == [True, False, False]


def test_memory_that_nobody_has_written_is_nan():
    def accumulate(x, y, total):
        total[...] += x[...]
        y[...] = total[...]

    with interpreted_as_on_a_tpu():
        found = call(accumulate, scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)])
    assert np.isnan(found).all()


def test_a_read_out_of_bounds_is_an_error():
    def beside(x, y):
        y[...] = x[pl.ds(8 * pl.program_id(0), 8), :]

    with interpreted_as_on_a_tpu(), pytest.raises(Exception, match=r"[Oo]ut-of-bounds"):
        call(beside)


@pytest.mark.skipif(not RACES_ARE_ERRORS, reason="jax prints that it has found a race, and goes on")
def test_a_race_is_an_error():
    def read_before_it_has_come(x, y, landed, arrived):
        copy = pltpu.make_async_copy(x, landed, arrived)
        copy.start()
        y[...] = landed[...]
        copy.wait()

    scratch = [pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA]
    with interpreted_as_on_a_tpu(), pytest.raises(Exception, match=r"[Rr]ace"):
        call(read_before_it_has_come, scratch_shapes=scratch)
