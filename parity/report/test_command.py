"""`python -m parity report`: pages where they were asked for, or one clear error."""

import argparse
from pathlib import Path

import pytest

from parity.report.command import add_arguments, main, refresh
from parity.report.documents import Run
from parity.report.json_form import encode


def _main(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return main(parser.parse_args([str(x) for x in arguments]))


@pytest.fixture
def directory(tmp_path: Path, run: Run) -> Path:
    """With a run in it."""
    (tmp_path / "run").mkdir()
    for name in ("accuracy", "failures", "kills"):
        (tmp_path / "run" / f"{name}.json").write_text(encode(getattr(run, name)), encoding="utf-8")
    return tmp_path / "run"


def test_both_pages_are_written_beside_the_run(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(directory) == 0
    assert (directory / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (directory / "report.md").read_text(encoding="utf-8").startswith("# Parity report")
    assert "report.html and report.md" in capsys.readouterr().out


def test_or_where_they_were_asked_for_against_another_run(directory: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "compared.html"
    assert _main(directory, "--against", directory, "--output", output) == 0
    assert 'id="compared"' in output.read_text(encoding="utf-8")
    assert "## Compared" in output.with_suffix(".md").read_text(encoding="utf-8")
    assert not (directory / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere",), "there is no directory nowhere"),
        (("run", "--against", "nowhere"), "there is no directory nowhere"),
        (("run", "--output", "page.txt"), "expected a name that ends in .html"),
    ],
)
def test_a_bad_argument_is_one_clear_error(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(directory.parent)
    assert _main(*arguments) == 2
    assert says in capsys.readouterr().err
    assert not list(directory.parent.rglob("*.html"))


def test_a_damaged_document_leaves_no_page(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(directory) == 0
    (directory / "kills.json").write_text("{}")
    assert _main(directory) == 2
    assert "kills.json is not what this version writes" in capsys.readouterr().err
    assert "kills.json is not what" in refresh(directory)
    assert not (directory / "report.html").exists()
    assert not (directory / "report.md").exists()
