"""`--faults` as a user meets it: what it selects, what it prints and writes, and its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity import test_causal_conv, test_layer_layouts
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.invisible import INVISIBLE
from parity.layer import decode_mistakes
from parity.layer.mistakes import MISTAKES

ROOT = Path(__file__).parents[2]

KERNELS = """
from dataclasses import replace
from functools import partial
import jax
import numpy as np
from implementations.chunked import CHUNKED, chunked

RIGHT = replace(CHUNKED, name="right")
NO_GRADIENTS = replace(CHUNKED, name="no_gradients", supports=CHUNKED.supports - {"gradients"})

def wrong(*inputs, scale, chunk_size):
    o, final_state = chunked(*inputs, scale=scale, chunk_size=chunk_size)
    return o, final_state.at[0, 0].set(0.0)

WRONG = replace(CHUNKED, name="wrong", call=wrong, packed=False)

compiled = jax.jit(chunked, static_argnames=("scale", "chunk_size"))

@partial(jax.jit, static_argnames=("scale", "chunk_size"))
def gradients(*arguments, scale, chunk_size):
    return jax.vjp(partial(chunked, scale=scale, chunk_size=chunk_size), *arguments[:6])[1](tuple(arguments[6:]))

def call(*inputs, scale, chunk_size):
    return tuple(np.asarray(x) for x in compiled(*inputs, scale=scale, chunk_size=chunk_size))

def vjp(*arguments, scale, chunk_size):
    return tuple(np.asarray(x) for x in gradients(*arguments, scale=scale, chunk_size=chunk_size))

FOREIGN = replace(
    CHUNKED, name="foreign", call=call, vjp=vjp, traceable=False, packed=False, arithmetic={"f32": "f32"}
)
"""


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    outside = {x: value for x, value in os.environ.items() if not x.startswith(("PYTEST_", "GITHUB_", "CI"))}
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def _names(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The first tokens of the ids of all that was collected."""
    ids = [line.partition("[")[2].rstrip("]") for line in done.stdout.splitlines() if "::" in line and "[" in line]
    return {name.partition("-")[0] for name in ids}


def test_faults_selects_all_faults_and_nothing_else() -> None:
    names = _names(_pytest("--faults", "--collect-only", "-q"))
    of_parts = MISTAKES.keys() | decode_mistakes.MISTAKES.keys() | test_layer_layouts.MISTAKES.keys()
    of_parts |= {x.name for x in test_causal_conv.MISTAKES}
    assert names == {x.name for x in (*CATALOGUE, *NULL_MODELS, *INVISIBLE)} | of_parts
    assert _names(_pytest("-m", "faults", "--collect-only", "-q")) == names


def test_around_an_implementation_of_ones_own_stand_those_that_can(kernels: Path) -> None:
    names = _names(_pytest("--faults", f"--implementation={kernels}:RIGHT", "--collect-only", "-q"))
    assert names == {f"right_with_{x.name}" for x in (*CATALOGUE, *NULL_MODELS) if x.wrap is not None}


def test_a_fault_in_a_right_kernel_is_caught_and_the_table_is_written(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("--faults", f"--implementation={kernels}:RIGHT", "-k", "scale_twice or mesh_axes_swapped"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 0, done.stdout
    assert "1 faults planted, 0 of them survived, 1 not applicable" in done.stdout
    assert "not applicable: a fault between ranks, of which it has one" in done.stdout
    kills = [kill for kill in json.loads((tmp_path / "kills.json").read_text())["kills"] if not kill["not_applicable"]]
    assert {(x["fault"], x["implementation"], x["regime"], x["killed"]) for x in kills} == {
        ("scale_twice", "right", "long_memory", True),
        ("scale_twice", "right", "typical", True),
    }
    for kill in kills:
        assert kill["units"]["o"] > kill["margin"] * kill["limits"]["o"]
        assert kill["units"]["dv"] > kill["limits"]["dv"]
    assert "| scale_twice | right |" in (tmp_path / "kills.md").read_text()


def test_a_kernel_of_another_framework_in_the_dtype_that_it_has(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("--faults", f"--implementation={kernels}:FOREIGN", "-k", "long_memory and (dv_of_row_0 or k_and_q_swapped)"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 0, done.stdout
    kills = json.loads((tmp_path / "kills.json").read_text())["kills"]
    assert {(x["fault"], x["dtype"], x["killed"]) for x in kills} == {
        ("dv_of_row_0", "f32", True),
        ("k_and_q_swapped", "f32", True),
    }


def test_a_fault_that_shows_otherwise_than_it_should_is_red(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("--faults", f"--implementation={kernels}:WRONG", "-k", "scale_twice and typical"),
        f"--parity-report={tmp_path}",
    )
    assert done.returncode == 1
    assert "final_state should be right and is not" in done.stdout


def test_where_nothing_can_be_planted_nothing_is_proven(kernels: Path, tmp_path: Path) -> None:
    done = _pytest(
        *("--faults", f"--implementation={kernels}:NO_GRADIENTS", "-k", "dv_of_row_0"), f"--parity-report={tmp_path}"
    )
    assert done.returncode == 1
    assert "not applicable: no gradients" in done.stdout
