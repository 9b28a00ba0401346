"""Before jax starts: eight CPU devices, and shapes in annotations that are checked on every call."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxtyping import install_import_hook

from parity.devices import simulate

simulate(8)
# Of the workers, which inherit it: they share the cores already, and BLAS threads beside them wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _with_shapes() -> Iterator[str]:
    """The modules whose annotations hold shapes. The types of all others are mypy's: to check these on every call too
    made collection half as long again.
    """
    root = Path(__file__).parent
    for package in ("oracles", "implementations", "parity"):
        for path in (root / package).rglob("*.py"):
            if "jaxtyping" in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


install_import_hook([*_with_shapes()], "beartype.beartype")
# Behind pytest's own hook, which is asked first and wants the test modules alone: their asserts explain themselves.
_type_checker = sys.meta_path.pop(0)
_rewriters = [i for i, finder in enumerate(sys.meta_path) if type(finder).__name__ == "AssertionRewritingHook"]
sys.meta_path.insert(max(_rewriters, default=-1) + 1, _type_checker)

pytest_plugins = [
    "parity.plugin",
    "parity.faults.plugin",
    "parity.properties.plugin",
    "parity.tpu.plugin",
    "parity.tpu.hardware",
    "parity.arithmetic.plugin",
]
