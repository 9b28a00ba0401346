"""`tox -e tpu` as it is written down: what it installs, what it runs, and what it is no part of."""

import tomllib
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def tox():
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    return parser


def test_it_runs_the_gate_of_the_other_environment_on_tpus():
    gate, on_tpus = (tox()[f"testenv:{name}"]["commands"].strip().splitlines()[0] for name in ("cpu", "tpu"))
    assert on_tpus == gate.replace("-m gate", "-m gate --tpu")
    assert tox()["testenv:tpu"]["set_env"].strip() == "JAX_PLATFORMS = tpu,cpu"
    assert "TPU_*" in tox()["testenv:tpu"]["pass_env"].split()


def test_it_installs_libtpu_with_jax():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert tox()["testenv:tpu"]["extras"] == "tpu"
    assert extras["tpu"] == ["jax[tpu]"]


def test_it_is_no_part_of_the_default_run():
    assert "tpu" not in tox()["tox"]["env_list"].split(", ")
