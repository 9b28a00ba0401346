"""Before jax starts: eight CPU devices, and shapes in annotations that are checked on every call."""

import sys

from jaxtyping import install_import_hook

from parity.devices import simulate

simulate(8)

install_import_hook(["oracles", "implementations", "parity"], "beartype.beartype")
# Behind pytest's own hook, which is asked first and wants the test modules alone: their asserts explain themselves.
_type_checker = sys.meta_path.pop(0)
_rewriters = [i for i, finder in enumerate(sys.meta_path) if type(finder).__name__ == "AssertionRewritingHook"]
sys.meta_path.insert(max(_rewriters, default=-1) + 1, _type_checker)

pytest_plugins = ["parity.plugin", "parity.faults.plugin", "parity.properties.plugin"]
