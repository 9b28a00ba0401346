"""How kernels run: compiled by Mosaic where jax computes on TPUs, interpreted where it computes on CPUs."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax.experimental.pallas import tpu as pltpu

_COMPILED: ContextVar[bool | None] = ContextVar("compiled", default=None)

# jax 0.10 prints that it has found a race, and goes on: there a race would be green.
RACES_ARE_ERRORS = "on_race" in {field.name for field in dataclasses.fields(pltpu.InterpretParams)}


def is_interpreted() -> bool:
    """For the `interpret` of a `pallas_call`."""
    compiled = _COMPILED.get()
    return jax.default_backend() == "cpu" if compiled is None else not compiled


@contextmanager
def compiled() -> Iterator[None]:
    """What is traced inside has its kernels compiled for a TPU, though there may be none."""
    token = _COMPILED.set(True)
    try:
        yield
    finally:
        _COMPILED.reset(token)


@contextmanager
def interpreted_as_on_a_tpu() -> Iterator[None]:
    """What is traced inside has its kernels, and those of others, interpreted with a TPU's memories and copies.

    Memory that nobody has written is NaN; a read out of bounds is an error, and so is a race where jax can tell.
    """
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(detect_races=RACES_ARE_ERRORS)), compiled():
        yield
