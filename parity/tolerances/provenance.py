"""What a number depends on besides the code: the commit, the versions, the devices, the flags, the sources."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax

from parity.tolerances.platforms import current

ROOT = Path(__file__).parents[2]
PACKAGES = ("jax", "jaxlib", "numpy", "python-flint")
# What decides the values of a problem; the oracles' own sources are the other digest.
PROBLEM_SOURCES = ("parity/regimes.py", "parity/shapes.py", "parity/problem.py", "parity/precision.py")
STREAM = "oracles/stream.py"

_CONFIG = ("jax_default_matmul_precision", "jax_disable_most_optimizations", "jax_enable_x64")


_of_others: dict[str, str | int] = {}


def provenance() -> dict[str, str | int | bool]:
    """Of this process and its devices, or those that it has left to others: on a TPU no two processes may hold them."""
    return {
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "clean_tree": _git("status", "--porcelain") == "",
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{package: version(package) for package in PACKAGES},
        **(_of_others or of_devices()),
        "flags": _flags(),
        "oracles": digest(path for path in (ROOT / "oracles").rglob("*.py") if not path.name.startswith("test_")),
        "problems": digest(ROOT / name for name in (*PROBLEM_SOURCES, STREAM)),
    }


def of_devices() -> dict[str, str | int]:
    """The platform, what jax calls its devices and how many there are, and for TPUs what compiles. It starts jax's
    backend.
    """
    device = jax.devices()[0]
    compiler = {"libtpu": _libtpu()} if device.platform == "tpu" else {}
    kind = {"device_kind": device.device_kind, "device_count": jax.device_count()}
    return {"platform": current() or "not recognised", **kind, **compiler}


def devices_of_others(about: Mapping[str, str | int]) -> None:
    """From here on the devices are those that another process has found to be `about`: this one leaves them alone."""
    _of_others.clear()
    _of_others.update(about)


def digest(paths: Iterable[Path]) -> str:
    """The first 16 hex digits of SHA-256 over names and contents, in the order of names."""
    hasher = hashlib.sha256()
    for path in sorted(paths):
        for field in (str(path.relative_to(ROOT)).encode(), path.read_bytes()):
            hasher.update(len(field).to_bytes(8, "little") + field)
    return hasher.hexdigest()[:16]


def _libtpu() -> str:
    try:
        return version("libtpu")
    except PackageNotFoundError:  # TPU_LIBRARY_PATH may name another
        return "unknown"


def _flags() -> str:
    """What changes how jax computes, as `NAME=value`, where it is set."""
    of_xla = {"XLA_FLAGS": os.environ.get("XLA_FLAGS"), "LIBTPU_INIT_ARGS": os.environ.get("LIBTPU_INIT_ARGS")}
    of_jax = {name: jax.config.values[name] for name in _CONFIG}
    return " ".join(f"{name}={value}" for name, value in (of_xla | of_jax).items() if value)


def _git(*arguments: str) -> str | None:
    """What git says of this checkout, or None where it is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
