"""What cannot be asked of TPUs: an arithmetic that they do not have, and more devices than one process has of them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from implementations.contract import Dtype
from parity.layouts import Layout
from parity.matrix import Case
from parity.tpu.chips import Devices
from parity.ut_inversion import CLAIMS

# XLA for TPUs makes an f64 of the sum of two f32: 48 bits in place of 53, and the exponents of f32.
NO_F64 = (
    "f64: a TPU has none; jax makes it of two f32, which is less than is claimed, and Mosaic compiles no kernel in it"
)


@dataclass(frozen=True)
class Needs:
    """What a test of the gate takes: a dtype, and that many devices of one process."""

    dtype: Dtype | None
    devices: int


@cache
def here() -> Devices:
    """Those of this process. It starts jax's backend."""
    devices = jax.devices()
    return Devices(devices[0].platform, devices[0].device_kind, len(devices))


def not_applicable(needs: Needs, devices: Devices) -> str | None:
    """Why it cannot be asked there, or None where it can. Of what is no TPU nothing is said: a mesh of CPU devices that
    is too small is an error.
    """
    if devices.backend != "tpu":
        return None
    if needs.dtype == "f64":
        return NO_F64
    if needs.devices > devices.count:
        return f"{needs.devices} devices are needed, and one process has {devices.count} here ({devices.kind})"
    return None


def not_applicable_here(case: Case) -> str | None:
    """Why `case` cannot be asked in this process."""
    return not_applicable(of_case(case), here())


def of_case(case: Case) -> Needs:
    return Needs(case.problem.dtype, case.layout.devices if case.implementation.context_parallel else 1)


def of_parameters(parameters: dict[str, Any], ranks: int | None) -> Needs:
    """Of a test of the gate with these parameters. `ranks`: what its mark `ranks` says, where no parameter does; a
    parameter is a number or a layout.
    """
    if "item" in parameters:
        return of_case(parameters["item"].case)
    claim = CLAIMS.get(parameters.get("claim", ""))
    over = parameters.get("layout") or parameters.get("ranks") or ranks or 1
    return Needs(claim.dtype if claim else parameters.get("dtype"), over.devices if isinstance(over, Layout) else over)
