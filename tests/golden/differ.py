#!/usr/bin/env python3
"""Generated requests, asked of two servers over echo engines: where do their answers differ?

    differ.py --vllm http://127.0.0.1:PORT --here http://127.0.0.1:PORT [--only GROUP]     # exit status 1 on differences

One is vLLM's own server, the other this project's, both started alike with an engine that sends a prompt's tokens back
(as for compare.py). Requests come from `generated.py`: every field of every API with values of every type, alone and in
streams, and combinations of fields; then from `generated_more.py`: everything else about a request. With `--calls NAME`
they come from `generated_calls.py`: outputs for the parsers of that row of servers.json; with turn.jinja in place of
echo.jinja the prompt ends as a turn does, so that streams begin as a model's own. Differences are shown in groups of the
same kind; those that are decided on purpose are counted, with their reasons.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden.compare import Json, ask, differences, fold
from tests.golden.decided_calls import other_way, reason_for
from tests.golden.decided_fields import reason_of
from tests.golden.decided_markup import markup_reason
from tests.golden.generated import requests
from tests.golden.generated_calls import call_requests
from tests.golden.generated_more import more_requests

SHOWN_EXAMPLES = 4


def shown(value: Any, most: int = 150) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 3] + "..."


def kind_of(path: str, want: Any, got: Any) -> str:
    """Differences of one kind have one key: the path without indices and what stands there, cut short."""
    plain = ".".join(part for part in path.replace("[", ".[").split(".") if not part.strip("[]").isdigit())
    return f"{plain}: vLLM {shown(want, 90)}  here {shown(got, 90)}"


def early(answer: Json) -> Json:
    """A stream that holds nothing but an error, as the error answer that it could have been."""
    error = answer.get("rest", {}).get("error")
    if error is None or "code" not in error or answer["choices"]:
        return answer
    return {"status": error["code"], "type": "application/json", "body": {"error": error}, "wording": answer.get("wording")}


def telling(found: list[tuple[str, Any, Any]]) -> str:
    """The kind of an answer's most telling differences: status and error if those differ, else the first two."""
    by_path = {item[0]: item for item in found}
    first = [by_path[path] for path in (".status", ".body.error", ".body.error.param", ".body.error.type") if path in by_path]
    return " | ".join(kind_of(*item) for item in (first or found)[:2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="http://HOST:PORT of vLLM's server")
    parser.add_argument("--here", required=True, help="http://HOST:PORT of this project's server")
    parser.add_argument("--only", default="", help="ids that start so")
    parser.add_argument("--calls", help="requests with tool calls and reasoning, for the servers of this row of servers.json")
    parser.add_argument("--wording", action="store_true", help="count wordings of errors as differences")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    made = call_requests(args.calls) if args.calls else chain(requests(), more_requests())
    todo = [item for item in made if item["id"].startswith(args.only)]

    def compared(request: Json) -> tuple[Json, list[tuple[str, Any, Any]], str | None]:
        """What differs, and why that is decided if it is."""
        want, got = ask(args.vllm, request), ask(args.here, request)
        hard = [item for item in differences(early(fold(want)), fold(got)) if args.wording or item[0] != ".wording"]
        reason = reason_of(request, hard) if hard else None
        if not hard or reason is not None or not args.calls:
            return request, hard, reason
        whole = cache(lambda: ask(args.vllm, other_way(request)))
        reason = reason_for(request, hard, want, got, whole) or markup_reason(request, hard, want, got, whole)
        return request, hard, reason

    groups: dict[str, list[Json]] = defaultdict(list)
    reasons: Counter[str] = Counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        for request, hard, reason in pool.map(compared, todo):
            if reason is not None:
                reasons[reason] += 1
            elif hard:
                groups[telling(hard)].append(request)
    for kind, examples in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(examples)}x {kind}")
        for example in examples[:SHOWN_EXAMPLES]:
            print(f"      {example['id']}: {shown(example.get('json', example.get('raw')), 260)}")
    for reason, times in reasons.most_common():
        print(f"decided {times}x: {reason}")
    failed = sum(map(len, groups.values()))
    print(f"{len(todo)} requests: {failed} differ, {reasons.total()} differ as decided")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
