"""Code that goes wrong on several processes or on one of them, for the tests of what is then said and what is left."""

import os
import subprocess
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


def _leaves(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    if jax.process_index() == 1:
        os._exit(0)
    return two_phase(*inputs, **keywords)


def _all_leave(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    os._exit(0)


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
    def beside_another(*inputs: jax.Array, **keywords: Any) -> tuple[jax.Array, jax.Array]:
        subprocess.Popen(["sleep", "120"])  # longer than any of the tests
        return call(*inputs, **keywords)

    implementation = Implementation(name, beside_another, {"f64": "f64"}, context_parallel=True)
    return (Case(implementation, Problem("typical", SHORT, "f64"), over(8)),)


DIES, SLEEPS, RAISES = _one_case("dies", _dies), _one_case("sleeps", _sleeps), _one_case("raises", _raises)
LEAVES, ALL_LEAVE = _one_case("leaves", _leaves), _one_case("all_leave", _all_leave)
WRONG = _one_case("wrong", _is_wrong_there)
