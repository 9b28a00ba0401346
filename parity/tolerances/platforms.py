"""The platforms that limits and ledgers know, recognised from what jax calls a device."""

import re

import jax

TPUS = ("tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x")
PLATFORMS = ("cpu", *TPUS, "gpu")

# Both spellings of a chip occur: the runtime says "TPU v5 lite", topologies and newer runtimes "TPU v5e".
_TPU = {
    "TPU v5 lite": "tpu-v5e",
    "TPU v5e": "tpu-v5e",
    "TPU v5": "tpu-v5p",
    "TPU v5p": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
    "TPU v6e": "tpu-v6e",
    "TPU7x": "tpu7x",
}
_GPU = re.compile(r"(NVIDIA|Tesla|GeForce|Quadro|AMD|Radeon|gfx\d)")


def platform_of(device_kind: str) -> str | None:
    """The platform of a jax `device_kind`, or None where it is none of `PLATFORMS`."""
    if device_kind == "cpu":
        return "cpu"
    return "gpu" if _GPU.match(device_kind) else _TPU.get(device_kind)


def current() -> str | None:
    """The platform that jax runs on by default."""
    device = jax.devices()[0]
    by_backend = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "rocm": "gpu"}
    return by_backend.get(device.platform) or platform_of(device.device_kind)
