"""What a number depends on besides the code: the commit, the versions, the devices, the flags, the sources."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import jax

from parity.tolerances.platforms import current

ROOT = Path(__file__).parents[2]
PACKAGES = ("jax", "jaxlib", "numpy", "python-flint")
# What decides the values of a problem; the oracles' own sources are the other digest.
PROBLEM_SOURCES = ("parity/regimes.py", "parity/shapes.py", "parity/problem.py", "parity/precision.py")
STREAM = "oracles/stream.py"

_CONFIG = ("jax_default_matmul_precision", "jax_disable_most_optimizations", "jax_enable_x64")


def provenance() -> dict[str, str | int | bool]:
    """Of this process and its devices. It starts jax's backend, so on a TPU no other process may hold the devices."""
    device = jax.devices()[0]
    return {
        "platform": current() or "not recognised",
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "clean_tree": _git("status", "--porcelain") == "",
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{package: version(package) for package in PACKAGES},
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "flags": _flags(),
        "oracles": digest(path for path in (ROOT / "oracles").rglob("*.py") if not path.name.startswith("test_")),
        "problems": digest(ROOT / name for name in (*PROBLEM_SOURCES, STREAM)),
    }


def digest(paths: Iterable[Path]) -> str:
    """The first 16 hex digits of SHA-256 over names and contents, in the order of names."""
    hasher = hashlib.sha256()
    for path in sorted(paths):
        for field in (str(path.relative_to(ROOT)).encode(), path.read_bytes()):
            hasher.update(len(field).to_bytes(8, "little") + field)
    return hasher.hexdigest()[:16]


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
