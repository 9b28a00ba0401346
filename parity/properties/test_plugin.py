"""The command line of the property tests, in processes of their own."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parity.properties import profiles
from parity.properties.examples import Example
from parity.properties.sizes import Sizes

ROOT = Path(__file__).parents[2]
FLIP = "parity/properties/test_symmetries.py::test_flip[float64_oracle-f64-drawn-small]"
LINE = Example(Sizes(1, 2, 1, 1, 1, 1, 1, 1, 1, 1), seed=5).line()


def run(*options):
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", FLIP, *options]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


def test_one_example_is_run_alone_on_a_night_that_is_seeded_with_its_date():
    before = f"{datetime.now(UTC):%Y%m%d}"
    status, text = run("--hypothesis-profile", "nightly", "--example", LINE, "--hypothesis-show-statistics")
    assert status == 0, text
    assert "1 passed" in text
    assert "generate phase" not in text
    (seed,) = re.findall(r"--hypothesis-profile nightly --hypothesis-seed (\d+)", text)
    assert before <= seed <= f"{datetime.now(UTC):%Y%m%d}"


def test_an_example_that_is_none_is_a_usage_error():
    status, text = run("--example", "B = 2")
    assert (status, "--example: an example has the entries" in text) == (pytest.ExitCode.USAGE_ERROR, True), text


def test_a_given_seed_is_kept():
    _, text = run("--hypothesis-profile", "hunt", "--hypothesis-seed", "77", "--collect-only")
    assert "--hypothesis-profile hunt --hypothesis-seed 77" in text


def test_a_profile_that_is_none_of_ours_is_refused():
    assert profiles.chosen(None).name == "gate"
    with pytest.raises(pytest.UsageError, match="know the profiles gate, nightly, hunt"):
        profiles.chosen("default")
