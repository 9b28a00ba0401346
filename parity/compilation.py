"""How the gate compiles: for a few runs, so that what compiles fastest is fastest."""

from collections.abc import Callable
from typing import Any

import jax

# Two fifths of a compilation for CPUs are LLVM's optimisation of code that then runs for milliseconds. XLA's own
# passes are the same without it, and so are the operations and their order.
_OF_CPUS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def jit_for_few_runs(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit`, on CPUs without LLVM's optimisation; elsewhere as users compile it."""
    return jax.jit(function, compiler_options=_OF_CPUS if jax.default_backend() == "cpu" else None)
