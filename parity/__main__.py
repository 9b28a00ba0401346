"""`python -m parity COMMAND`: what is not a test."""

import argparse
import sys

from parity.compiled import exchanged
from parity.report import command as report
from parity.tolerances import check, observe
from parity.tolerances.entries import BadTable

COMMANDS = {
    "observe": (observe, "run the gate on fresh seeds and rewrite the ledger of this platform"),
    "limits": (check, "list every loosening against a revision"),
    "exchanged": (
        exchanged,
        "what each context-parallel implementation sends between ranks, from its compiled program",
    ),
    "report": (report, "write a page about what a run left behind"),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m parity")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        module.add_arguments(command)
        command.set_defaults(main=module.main)
    chosen = parser.parse_args(arguments)
    try:
        return chosen.main(chosen)
    except BadTable as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
