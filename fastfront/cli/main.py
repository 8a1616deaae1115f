"""`fastfront`: one program, its jobs as subcommands."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from argparse import Action, ArgumentParser, BooleanOptionalAction, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastfront.cli import bench, serve, top
from fastfront.errors import SetupError


class Command(NamedTuple):
    """One subcommand: `parse` gets its words, `run` what comes of them; both get its parser. `run` gives the exit status."""

    name: str
    usage: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    parse: Callable[[Sequence[str], ArgumentParser], Namespace]
    run: Callable[[Namespace, ArgumentParser], int]


COMMANDS = (
    Command("serve", "MODEL [flags]", "serve a model over HTTP", serve.add_arguments, serve.parse, serve.run),
    Command("bench", "JOB [flags]", "measure frontends side by side", bench.add_arguments, bench.parse, bench.run),
    Command("top", "[flags]", "watch a running server", top.add_arguments, top.parse, top.run),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status: 2 for bad flags, 1 if it could not start, else the subcommand's own."""
    parser = ArgumentParser(prog="fastfront", description="An OpenAI-compatible frontend for vLLM-protocol engines.",
                            allow_abbrev=False)  # fmt: skip
    parser.add_argument("--version", action="version", version=f"fastfront {importlib.metadata.version('fastfront')}")
    jobs = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        job = jobs.add_parser(command.name, help=command.summary, description=command.summary, allow_abbrev=False,
                              usage=f"fastfront {command.name} {command.usage}",
                              formatter_class=help_format)  # fmt: skip
        command.add_arguments(job)
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((command for command in COMMANDS if words[:1] == [command.name]), None)
    if chosen is None:
        parser.parse_args(words)           # says what is wrong, or helps, and leaves
        return 2
    job = jobs.choices[chosen.name]
    try:
        return int(chosen.run(chosen.parse(words[1:], job), job))
    except SetupError as error:
        print(f"fastfront: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the job has said what a signal is to do
        return 130


class _Help(HelpFormatter):
    """Switches are shown in the spelling that turns them on."""

    def _format_action_invocation(self, action: Action) -> str:
        if isinstance(action, BooleanOptionalAction):
            return ", ".join(name for name in action.option_strings if not name.startswith("--no-"))
        return super()._format_action_invocation(action)


def help_format(prog: str) -> HelpFormatter:
    """Flags and their texts side by side, as wide as the terminal up to 120 columns."""
    return _Help(prog, max_help_position=38, width=min(120, shutil.get_terminal_size().columns - 2))


if __name__ == "__main__":
    sys.exit(main())
