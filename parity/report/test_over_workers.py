"""What a worker finds reaches the process that reports, infinite numbers included."""

import os
import subprocess
import sys
from pathlib import Path

from parity.report.documents import read

ROOT = Path(__file__).parents[2]

KERNEL = """
from implementations import Implementation
from implementations.chunked import chunked
from implementations.contract import FEATURES

def one_nan(*inputs, scale, chunk_size):
    o, final_state = chunked(*inputs, scale=scale, chunk_size=chunk_size)
    return o.at[1, 5, 4, 3].set(float("nan")), final_state

ONE_NAN = Implementation("one_nan", one_nan, arithmetic={"f64": "f64"}, supports=FEATURES - {"gradients"})
"""


def test_a_failing_case_comes_from_its_worker_once_and_whole(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n2", "parity/test_forward.py"]
    command += ["-k", "f64 and short and (typical or long_memory)"]
    command += ["--implementation", f"{tmp_path / 'kernel.py'}:ONE_NAN", f"--parity-report={tmp_path}"]
    outside = {x: value for x, value in os.environ.items() if not x.startswith(("PYTEST_", "GITHUB_", "CI"))}
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    run = read(tmp_path)
    assert run.failures is not None
    assert run.accuracy is not None
    cases = run.failures.failures
    assert len({failure.case for failure in cases}) == len(cases) == sum(row.failed for row in run.accuracy.rows) > 1
    for failure in cases:
        assert (list(failure.wrong), list(failure.right)) == (["o"], ["final_state"])
        assert failure.message in done.stdout
        over = [[[x > 32 for x in block] for block in row] for row in failure.quantities["o"].units[0]]
        assert over == [[[False] * 6], [[False, False, False, False, True, False]]]
    assert "infinite" in (tmp_path / "report.html").read_text(encoding="utf-8")
