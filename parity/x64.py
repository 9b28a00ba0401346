"""f64 or not, for all that a run computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def x64(on: bool) -> Iterator[None]:
    """jax has 64 bits inside, or has not, in every thread.

    `jax.enable_x64` is of the thread that enters it, and a callback out of a program runs in a thread of XLA's: there
    jax would cut the f64 that it returns to f32, and then refuse it, for it is not what the program expects.
    """
    before = jax.enable_x64.get_global()
    jax.config.update("jax_enable_x64", on)
    try:
        with jax.enable_x64(on):
            yield
    finally:
        jax.config.update("jax_enable_x64", before)
