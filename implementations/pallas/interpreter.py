"""How kernels run: compiled by Mosaic where jax computes on TPUs, interpreted where it computes on CPUs."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.experimental.pallas import tpu as pltpu

# What jax has traced in one mode it traces again in another: a `ContextVar` would not be seen by its caches.
_MODE = jax.make_user_context(None)

RACES_ARE_ERRORS = "on_race" in {field.name for field in dataclasses.fields(pltpu.InterpretParams)}


def is_interpreted() -> bool:
    """For the `interpret` of a `pallas_call`."""
    return _MODE.value is None and jax.default_backend() == "cpu"


@contextmanager
def compiled() -> Iterator[None]:
    """What is traced inside has its kernels compiled for a TPU, though there may be none."""
    with _MODE("compiled"):
        yield


@contextmanager
def interpreted_as_on_a_tpu() -> Iterator[None]:
    """What is traced inside has its kernels, and those of others, interpreted with a TPU's memories and copies.

    Memory that nobody has written is NaN; a read out of bounds is an error, and so is a race where jax can tell.
    """
    parameters = pltpu.InterpretParams(detect_races=RACES_ARE_ERRORS)
    with pltpu.force_tpu_interpret_mode(parameters), _MODE("interpreted as on a TPU"):
        yield
