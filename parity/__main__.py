"""`python -m parity COMMAND`."""

import argparse
import sys

from parity.report import command


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m parity")
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="write a page about what a run left behind")
    command.add_arguments(report)
    report.set_defaults(main=command.main)
    arguments = parser.parse_args()
    code: int = arguments.main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
