"""`fastfront`: one program, its jobs as subcommands."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastfront.cli import serve
from fastfront.errors import SetupError


class Command(NamedTuple):
    """One subcommand: `run` gets the parsed arguments and its parser, and returns the exit status."""

    name: str
    usage: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, ArgumentParser], int]


_FLAG = re.compile(r"--[\w-]+")
COMMANDS = (Command("serve", "MODEL [flags]", "serve a model over HTTP", serve.add_arguments, serve.run),)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status: 2 for bad flags, 1 if it could not start, else the subcommand's own."""
    parser = ArgumentParser(prog="fastfront", description="An OpenAI-compatible frontend for vLLM-protocol engines.",
                            allow_abbrev=False)  # fmt: skip
    jobs = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        job = jobs.add_parser(command.name, help=command.summary, description=command.summary, allow_abbrev=False,
                              usage=f"fastfront {command.name} {command.usage}")  # fmt: skip
        command.add_arguments(job)
        job.set_defaults(_command=command, _parser=job)
    args = parser.parse_args([with_dashes(word) for word in (sys.argv[1:] if argv is None else argv)])
    try:
        return int(args._command.run(args, args._parser))
    except SetupError as error:
        print(f"fastfront: error: {error}", file=sys.stderr)
        return 1


def with_dashes(word: str) -> str:
    """A flag spelled with underscores, spelled with dashes; values stay as they are."""
    name, equals, value = word.partition("=")
    if not _FLAG.fullmatch(name):
        return word
    return name.replace("_", "-") + equals + value


if __name__ == "__main__":
    sys.exit(main())
