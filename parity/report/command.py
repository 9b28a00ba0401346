"""`python -m parity report`: a page about what a run left behind."""

import argparse
import sys
from pathlib import Path

from parity.report.documents import CannotRead, Run, read
from parity.report.markdown import markdown
from parity.report.page import html


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write an HTML page, and the same in Markdown beside it, about what a run left behind."
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path("build/parity"),
        metavar="DIR",
        help="where accuracy, failures, kills and exchanged.json are; each may be absent (default: %(default)s)",
    )
    parser.add_argument(
        "--against", type=Path, metavar="DIR2", help="compare with the run in DIR2, which is called before"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE.html", help="where the page goes (default: report.html in DIR)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Write the pages. 0 where that is done, whatever they say; 2 where an input cannot be read or a page written."""
    output = arguments.output or arguments.directory / "report.html"
    try:
        if output.suffix != ".html":
            raise CannotRead(f"--output {output}: expected a name that ends in .html")
        against = read(arguments.against) if arguments.against else None
        write(read(arguments.directory), against, output)
    except (CannotRead, OSError) as error:
        print(f"parity report: {error}", file=sys.stderr)
        return 2
    print(f"written: {output} and {output.with_suffix('.md').name}")
    return 0


def refresh(directory: Path) -> str:
    """Write report.html and report.md about all that lies in `directory`; returns what to tell of it.

    Where something there cannot be read the pages of an earlier run are removed.
    """
    page = directory / "report.html"
    try:
        write(read(directory), None, page)
    except CannotRead as error:
        page.unlink(missing_ok=True)
        page.with_suffix(".md").unlink(missing_ok=True)
        return f"no report is written: {error}"
    return f"report in {page}"


def write(run: Run, against: Run | None, output: Path) -> None:
    """The page at `output`, and the same in Markdown beside it."""
    page, text = html(run, against), markdown(run, against)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page, encoding="utf-8")
    output.with_suffix(".md").write_text(text, encoding="utf-8")
