"""`--tpu-interpret` as a user meets it: a kernel that reads what nobody has written is red, and ours is green."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

KERNELS = """
from functools import partial
from implementations import Implementation
from implementations.chunked import chunked
from implementations.pallas.composition import PALLAS
from parity.faults.edits import Edit, edited

SCAN = "implementations.pallas.scan"
unset = edited(SCAN + ":walk", Edit(SCAN, "cotangent[...] = dfinal_state[...]", "pass"))
RIGHT = Implementation("right", PALLAS.call, arithmetic={"f32": "f32", "f64": "f64"})
UNSET = Implementation("unset", partial(chunked, walk=unset), arithmetic={"f32": "f32"})
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.mark.parametrize(("name", "status"), [("RIGHT", 0), ("UNSET", 1)])
def test_what_nobody_has_written_is_seen(kernels, tmp_path, name, status):
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--tpu-interpret"]
    select = ["--implementation", f"{kernels}:{name}", "-k", "typical and short", f"--parity-report={tmp_path}"]
    done = subprocess.run([*command, *select], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "kernels as on a TPU" in done.stdout
    if status:
        assert "dh0" in done.stdout
        assert "not finite" in done.stdout or "nan" in done.stdout
