"""Code that goes wrong on one of several processes, for the tests of what is then said."""

import os
import time
from typing import Any

import jax

from implementations.context_parallel.two_phase import two_phase
from implementations.contract import Implementation
from parity.layouts import over
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import SHORT


def _dies(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    if jax.process_index() == 1:
        os._exit(7)
    return two_phase(*inputs, **keywords)


def _sleeps(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    if jax.process_index() == 1:
        time.sleep(3600)
    return two_phase(*inputs, **keywords)


def _raises(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    if jax.process_index() == 1:
        raise ValueError("no such host")
    return two_phase(*inputs, **keywords)


def _is_wrong_there(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    o, final_state = two_phase(*inputs, **keywords)
    there = jax.process_count() > 1
    return o.at[:, o.shape[1] // 2 :].multiply(1.01) if there else o, final_state


def _one_case(name: str, call: Any) -> tuple[Case, ...]:
    implementation = Implementation(name, call, {"f64": "f64"}, context_parallel=True)
    return (Case(implementation, Problem("typical", SHORT, "f64"), over(8)),)


DIES, SLEEPS, RAISES = _one_case("dies", _dies), _one_case("sleeps", _sleeps), _one_case("raises", _raises)
WRONG = _one_case("wrong", _is_wrong_there)
