"""Before jax starts: eight CPU devices, and shapes in annotations that are checked on every call."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
install_import_hook(["oracles", "implementations", "parity"], "beartype.beartype")

pytest_plugins = ["parity.plugin"]
