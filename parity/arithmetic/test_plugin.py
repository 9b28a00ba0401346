"""`--matmul-precision` as a user meets it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from implementations import VARIANTS
from parity import plugin
from parity.arithmetic.plugin import pytest_configure
from parity.matrix import cases

ROOT = Path(__file__).parent.parent.parent

KERNELS = """
from dataclasses import replace
from implementations import Implementation
from implementations.chunked import CHUNKED, chunked
F32 = {"f32": "f32"}
MINE = replace(CHUNKED, name="mine", arithmetic=F32)
OPAQUE = replace(MINE, name="opaque", traceable=False, supports=(), vjp=None)
"""


def judged(tmp_path, name, precision):
    kernels = tmp_path / "kernels.py"
    kernels.write_text(KERNELS)
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--implementation", f"{kernels}:{name}"]
    select = ["-k", "typical and short", f"--parity-report={tmp_path}", f"--matmul-precision={precision}"]
    return subprocess.run([*command, *select], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(("precision", "status"), [("highest", 0), ("default", 1)])
def test_the_verdict_is_that_on_the_products_asked_for(tmp_path, precision, status):
    """Six passes are f32, and one pass is not, in the outputs and in the gradients."""
    done = judged(tmp_path, "MINE", precision)
    assert done.returncode == status, done.stdout + done.stderr
    for quantity in ("o", "final_state", "dk", "dh0"):
        assert f"mine_{precision}-f32-typical-short-shard0of1-{quantity}" in done.stdout
        failed = f"mine_{precision}-f32-typical-short-shard0of1-{quantity}: " in done.stdout
        assert failed == bool(status)


def test_what_is_emulated_meets_what_it_is_made_from_meets():
    """A variant meets fewer cases than what comes from elsewhere."""
    options = {"matmul_precision": "high", "full": False}
    stash = {plugin.IMPLEMENTATIONS: VARIANTS, plugin.SEEDS: (0,)}
    config = SimpleNamespace(getoption=options.__getitem__, stash=stash)
    pytest_configure(config)
    found, plain = plugin._cases(config), cases(VARIANTS)
    assert [x.name for x in found] == [x.name.replace("-", "_high-", 1) for x in plain]
    assert len({x.implementation for x in found}) == len(VARIANTS)


def test_what_jax_cannot_trace_is_refused_before_anything_runs(tmp_path):
    done = judged(tmp_path, "OPAQUE", "high")
    assert done.returncode == 4
    assert "--matmul-precision: opaque cannot be traced by jax" in done.stderr
