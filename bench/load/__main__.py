"""One load, its result as JSON:

    python -m bench.load --port 8000 --streams 256 --seconds 20 [--extra '{"stop": ["x"]}'] [--json FILE]

Flags are the fields of `Load`; --help lists them with their defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from bench.load.options import Load, LoadError
from bench.load.run import run


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 if no request succeeded, 2 if the load could not be made."""
    parser = argparse.ArgumentParser("bench.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Load):
        flag = "--" + field.name.replace("_", "-")
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if field.name == "port":
            parser.add_argument(flag, type=int, required=True)
        elif isinstance(default, bool) or field.name == "progress":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help="(default: %(default)s)")
        else:
            parser.add_argument(flag, type=_reader(default, field.name), default=default, help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the result there instead of printing it")
    values = vars(parser.parse_args(argv))
    out: Path | None = values.pop("json")
    try:
        result = run(Load(**values))
    except LoadError as error:
        print(f"bench.load: {error}", file=sys.stderr)
        return 2
    text = json.dumps(result, indent=1)
    if out is None:
        print(text)
    else:
        out.write_text(text + "\n")
    return 0 if result["requests"]["ok"] else 1


def _reader(default: Any, name: str) -> Any:
    if isinstance(default, (dict, tuple)):
        return json.loads
    if name in ("prompts", "bodies"):
        return Path
    return str if default is None else type(default)


if __name__ == "__main__":
    sys.exit(main())
