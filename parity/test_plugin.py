"""The suite as a user meets it: the command line, what it selects, what it prints and writes, and its exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MESHES = (2, 4, 5, 8)

KERNELS = """
import time
import jax.numpy as jnp
from implementations import Implementation
from implementations.chunked import chunked
from implementations.context_parallel.two_phase import two_phase

def right(*inputs, scale, chunk_size):
    return chunked(*inputs, scale=scale, chunk_size=chunk_size)

def a_percent_too_large(*inputs, scale, chunk_size):
    o, final_state = right(*inputs, scale=scale, chunk_size=chunk_size)
    return 1.01 * o, final_state

def raises(*inputs, scale, chunk_size):
    raise RuntimeError("the kernel is not here")

def hangs(*inputs, scale, chunk_size):
    time.sleep(600)

def over_ranks(*inputs, scale, chunk_size, mesh, axes):
    return two_phase(*inputs, scale=scale, chunk_size=chunk_size, mesh=mesh, axes=axes)

F64 = {"f64": "f64"}
RIGHT = Implementation("right", right, arithmetic=F64)
BOTH = (Implementation("raises", raises, arithmetic=F64), RIGHT)
TOO_LARGE = Implementation("too_large", a_percent_too_large, arithmetic=F64)
OVER_RANKS = Implementation("over_ranks", over_ranks, arithmetic=F64, context_parallel=True)
HANGS = (Implementation("hangs", hangs, arithmetic=F64), RIGHT)
CLAIMS_NOTHING = Implementation("claims_nothing", right, arithmetic=F64, supports=())
"""


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`CI` is what this run is given or nothing: pytest prints more where it is set."""
    outside = {x: value for x, value in os.environ.items() if not x.startswith(("PYTEST_", "GITHUB_", "CI"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=outside | environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def _collect(*arguments: str) -> list[str]:
    """The parameters of the selected items of the gate; anything else that is selected stands for itself."""
    done = _pytest("--collect-only", "-q", *arguments)
    nodes = [line for line in done.stdout.splitlines() if "::" in line]
    return [match[1] if (match := re.search(r"\[(.*)\]$", node)) else node for node in nodes]


def test_k_selects_one_rank_of_every_mesh_and_nothing_else() -> None:
    everything, rank_1 = _collect("-m", "gate"), _collect("-k", "shard1")
    wanted = [name for name in everything if "-shard1of" in name]
    assert sorted(rank_1) == sorted(wanted)
    assert {int(re.search(r"shard1of(\d)-", name)[1]) for name in rank_1} == set(MESHES)
    one_mesh = _collect("-k", "shard1of4")
    assert sorted(one_mesh) == sorted(name for name in wanted if "-shard1of4-" in name)
    one_thing = _collect("-k", "two_phase and dk")
    assert sorted(one_thing) == sorted(n for n in everything if n.startswith("two_phase-") and n.endswith("-dk"))


def test_an_implementation_of_ones_own_is_asked_alone(kernels: Path) -> None:
    names = _collect("--implementation", f"{kernels}:RIGHT", "--implementation", f"{kernels}:OVER_RANKS")
    assert {name.split("-")[0] for name in names} == {"right", "over_ranks"}
    assert {re.search(r"shard\d+of(\d+)", name)[1] for name in names if name.startswith("over_ranks")} >= {
        "2",
        "4",
        "8",
    }


def test_fresh_seeds_have_names_of_their_own() -> None:
    names = _collect("--seeds", "3-4", "-k", "chunked and f64 and ragged and dk")
    assert {name.split("-")[2] for name in names} >= {"typical_seed3", "typical_seed4", "zero_keys_seed4"}
    assert not any("typical-" in name for name in names)


def test_a_right_kernel_is_green_and_the_table_is_written_three_times(kernels: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = _pytest(
        *("-n0", "--implementation", f"{kernels}:RIGHT", "-k", "f64 and short", f"--parity-report={tmp_path}"),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("implementation  dtype  quantity") == 1
    rows = json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    assert [row["quantity"] for row in rows] == ["o", "final_state", "dq", "dk", "dv", "dg", "dbeta", "dh0"]
    assert all(0 < row["units"] <= row["limit"] and row["failed"] == 0 for row in rows)
    assert summary.read_text() == (tmp_path / "accuracy.md").read_text()
    assert "| right | f64 | dh0 |" in summary.read_text()


@pytest.mark.parametrize("where", [{}, {"CI": "true"}], ids=["at_a_desk", "in_ci"])
def test_a_wrong_kernel_is_red_and_says_how_to_run_it_again(
    kernels: Path, tmp_path: Path, where: dict[str, str]
) -> None:
    spec = f"{kernels}:TOO_LARGE"
    report = f"--parity-report={tmp_path}"
    done = _pytest("-n0", "--implementation", spec, "-k", "f64 and short and typical", report, **where)
    assert done.returncode == 1
    assert done.stdout.count("worst first") == 1
    command = re.search(r'python -m pytest -n0 "(\S+)" --implementation "(\S+)"', done.stdout)
    assert command is not None
    assert command[2] == spec
    rows = {row["quantity"]: row for row in json.loads((tmp_path / "accuracy.json").read_text())["rows"]}
    assert rows["o"]["failed"] == 1
    assert rows["final_state"]["failed"] == 0
    again = _pytest("-n0", command[1], "--implementation", command[2], report)
    assert again.returncode == 1
    assert "1 failed" in again.stdout


def test_a_call_that_raises_fails_alone(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("-n0", "--implementation", f"{kernels}:BOTH", "-k", "f64 and short and typical"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 1
    assert "8 failed, 8 passed" in done.stdout
    assert 'raise RuntimeError("the kernel is not here")' in done.stdout
    assert "parity/run.py" not in done.stdout


def test_a_kernel_that_hangs_is_red_alone_and_shows_where(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("-n1", "-o", "faulthandler_timeout=20", "--implementation", f"{kernels}:HANGS"),
        *("-k", "f64 and short and typical and dk", f"--parity-report={tmp_path}"),
    )
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"worker 'gw0' crashed while running .*\[hangs-f64-typical-short-shard0of1-dk\]", done.stdout)
    assert re.search(r'kernels.py", line \d+ in hangs', done.stderr)


def test_a_context_parallel_kernel_of_ones_own(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("-n0", "--implementation", f"{kernels}:OVER_RANKS", "-k", "shard1of4 and f64 and short"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b56 passed", done.stdout)


def test_what_is_not_applicable_is_counted_and_never_a_success(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("-n0", "--implementation", f"{kernels}:CLAIMS_NOTHING", "-k", "short and typical"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 1
    assert "claims_nothing: no grouped heads" in done.stdout
    assert "claims_nothing: no arithmetic is claimed for f32" in done.stdout
    assert "Nothing was judged" in done.stdout


def test_one_process_and_two_give_the_same_table(kernels: Path, tmp_path: Path) -> None:
    chosen = ("-k", "f32 and short and (sequential or chunked)")
    for workers in ("0", "2"):
        done = _pytest(f"-n{workers}", *chosen, f"--parity-report={tmp_path / workers}")
        assert done.returncode == 0, done.stdout
    assert (tmp_path / "0" / "accuracy.json").read_bytes() == (tmp_path / "2" / "accuracy.json").read_bytes()


EXPECTED = """
[[expected]]
implementation = "too_large"
quantity = ["o", "dq", "dk", "dv", "dg", "dbeta", "dh0"]
kind = "deviation"
units = {units}
reason = "it is a percent too large"
issue = "example.org/1"

[[expected]]
implementation = "raises"
quantity = ["o", "final_state"]
kind = "xfail"
reason = "the kernel is not here"
issue = "example.org/2"

[[expected]]
implementation = "raises"
quantity = ["dq", "dk", "dv", "dg", "dbeta", "dh0"]
kind = "not_applicable"
reason = "nor is its backward"
issue = "example.org/2"
"""


def _expecting(kernels: Path, tmp_path: Path, text: str, *chosen: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "expected.toml"
    path.write_text(text)
    specs = [x for name in ("TOO_LARGE", "BOTH") for x in ("--implementation", f"{kernels}:{name}")]
    return _pytest("-n0", *specs, f"--expect={path}", f"--parity-report={tmp_path}", *chosen)


def test_what_is_expected_is_green_counted_and_never_in_silence(kernels: Path, tmp_path: Path) -> None:
    text = EXPECTED.format(units="[1e10, 1e17]")
    done = _expecting(kernels, tmp_path, text, "-k", "f64 and short and typical and not right")
    assert done.returncode == 0, done.stdout
    assert "8 passed, 6 skipped" in done.stdout
    assert "2 xfailed" in done.stdout
    assert "not applicable, 6 items: raises: nor is its backward (example.org/2)" in done.stdout
    rows = {
        (r["implementation"], r["quantity"]): r for r in json.loads((tmp_path / "accuracy.json").read_text())["rows"]
    }
    counts = {key: (row["judged"], row["failed"], row["expected"]) for key, row in rows.items()}
    assert counts["too_large", "o"] == counts["raises", "final_state"] == (1, 0, 1)
    assert counts["too_large", "final_state"] == (1, 0, 0)
    assert rows["too_large", "o"]["units"] > rows["too_large", "o"]["limit"]


def test_what_improved_is_red_and_so_is_what_got_worse(kernels: Path, tmp_path: Path) -> None:
    for units, says in (("[1e18, 1e19]", "it improved to"), ("[33, 100]", "more than the 33 to 100 units that")):
        text = EXPECTED.format(units=units)
        done = _expecting(kernels, tmp_path, text, "-k", "f64 and short and typical and too_large")
        assert done.returncode == 1
        assert "7 failed, 1 passed" in done.stdout
        assert says in done.stdout
        assert f'"--expect={tmp_path / "expected.toml"}"' in done.stdout


def test_what_was_expected_to_fail_and_passes_is_red(kernels: Path, tmp_path: Path) -> None:
    text = EXPECTED.format(units="[1e10, 1e17]").replace('"raises"', '"right"')
    done = _expecting(kernels, tmp_path, text, "-k", "f64 and short and typical and right and (o or final_state)")
    assert done.returncode == 1
    assert done.stdout.count("it was expected to fail, and passes: take out") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (EXPECTED.format(units="[30, 50]"), "units begin at 30, within the limit 32 of too_large-f64-"),
        (EXPECTED.format(units="[40, 50]").replace("too_large", "too_small"), "no item of the matrix has"),
        (EXPECTED.format(units="[40, 50]").replace("issue", "ticket"), "issue must be given"),
        ("[[expected", "it is not TOML"),
    ],
)
def test_a_bad_file_of_expectations_is_one_clear_error(kernels: Path, tmp_path: Path, text: str, says: str) -> None:
    done = _expecting(kernels, tmp_path, text, "-k", "short")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--implementation", "nowhere.py:KERNEL"), "there is no file"),
        (("--implementation", "kernel"), "expected FILE.py:NAME or package.module:NAME"),
        (("--expect=file.toml",), "--expect is for what comes with --implementation"),
        (("--seeds", "9-3"), "expected a seed or a range of seeds"),
        (("--seeds", "many"), "expected a seed or a range of seeds"),
    ],
)
def test_a_bad_option_is_one_clear_error(arguments: tuple[str, ...], says: str) -> None:
    done = _pytest(*arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_examples_of_the_readme(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["mine.py", "foreign.py"]
    specs = []
    for name, source in blocks:
        (tmp_path / name).write_text(source)
        specs += ["--implementation", f"{tmp_path / name}:{name.removesuffix('.py').upper()}"]
    done = _pytest(
        "-n0", *specs, "-k", "ragged and (long_memory or typical) and not packed", f"--parity-report={tmp_path}"
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"48 passed, 48 skipped", done.stdout) is not None, done.stdout
