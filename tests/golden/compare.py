#!/usr/bin/env python3
"""Answers of vLLM 0.32's Python server, and a comparison of any other server with them.

requests.jsonl  one request a line: id, server (a row of servers.json), method, path, headers, and json, raw or raw_hex
answers.jsonl   what vLLM answered: status, content type, and json, events (SSE) or text
servers.json    how each server was started: model folder, chat template, flags; its engine sent the prompt's tokens back
                one by one, so that answers depend on the frontend alone
decided.json    request id -> why this project answers otherwise
more_*          further requests in the same form, picked from about 14,000 so that they differ in what they ask or get

    compare.py compare --base http://127.0.0.1:PORT --server NAME     # exit status 1 on differences
    compare.py record  --base http://127.0.0.1:PORT --server NAME > answers

Streams are folded (texts, token ids, logprobs and tool calls joined per choice), so how tokens were grouped into events does not
matter. Ids, times and fingerprints are not compared. Messages of errors are counted apart and do not fail.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VOLATILE = frozenset({
    "id", "created", "created_at", "completed_at", "system_fingerprint", "request_id", "item_id", "call_id", "root",
    "engine_id", "sequence_number", "signature",
})  # fmt: skip
# Texts that come whole in every event, unlike those that come in pieces.
WHOLE = frozenset({"role", "finish_reason", "stop_reason", "type", "object", "name"})
SHOWN_DIFFERENCES = 8

# Of the library that is installed, not of the server.
PYDANTIC = re.compile(r"(?<=errors\.pydantic\.dev/)[\d.]+(?=/)")

Json = dict[str, Any]


def read_lines(path: Path) -> list[Json]:
    """The objects of a file with one on each line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def body_of(request: Json) -> bytes | None:
    """The bytes a recorded request sends."""
    if "raw_hex" in request:
        return bytes.fromhex(request["raw_hex"])
    if "raw" in request:
        return str(request["raw"]).encode()
    return json.dumps(request["json"]).encode() if "json" in request else None


def ask(base: str, request: Json, timeout_s: float = 60) -> Json:
    """Send a recorded request; the answer in the form of answers.jsonl, with status 0 if there was none."""
    data = body_of(request)
    headers = dict(request.get("headers") or {})
    if data is not None:
        headers.setdefault("content-type", "application/json")
    sent = urllib.request.Request(base + request["path"], data=data, headers=headers, method=request["method"])
    try:
        with urllib.request.urlopen(sent, timeout=timeout_s) as answer:
            try:
                body = answer.read()
            except http.client.IncompleteRead as error:  # cut off: what there is of it
                body = error.partial
            return parsed(request["id"], answer.status, answer.headers.get("content-type", ""), body)
    except urllib.error.HTTPError as error:
        with error:
            return parsed(request["id"], error.code, error.headers.get("content-type", ""), error.read())
    except (OSError, ValueError) as error:
        return {"id": request["id"], "status": 0, "type": "", "text": type(error).__name__}


def parsed(name: str, status: int, kind: str, body: bytes) -> Json:
    """An answer in the form of answers.jsonl."""
    answer: Json = {"id": name, "status": status, "type": kind.split(";")[0]}
    text = body.decode("utf-8", "replace")
    if answer["type"] == "text/event-stream":
        answer["events"] = [event for block in text.split("\n\n") if (event := parsed_event(block))]
        return answer
    try:
        answer["json"] = json.loads(text)
    except ValueError:
        answer["text"] = text
    return answer


def parsed_event(block: str) -> Json:
    event: Json = {}
    for line in block.split("\n"):
        key, _, value = line.partition(": ")
        if key in ("event", "data"):
            event[key] = value
    with contextlib.suppress(KeyError, ValueError):
        event["data"] = json.loads(event["data"])
    return event


def clean(value: Any) -> Any:
    """The value without ids and times; floats rounded; nulls and missing keys are the same."""
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items() if key not in VOLATILE and item is not None}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def join(into: Json, delta: Json) -> None:
    """Add a piece of a choice to what is there."""
    for key, value in delta.items():
        if value is None:
            continue
        if key == "tool_calls":
            calls = into.setdefault(key, {})
            for call in value:
                rest = {name: item for name, item in call.items() if name not in ("index", "id")}
                join(calls.setdefault(str(call.get("index", 0)), {}), rest)
        elif isinstance(value, dict):
            join(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            into[key] = into.get(key, []) + clean(value)
        elif isinstance(value, str) and key not in WHOLE:
            into[key] = into.get(key, "") + value
        else:
            into[key] = value


def fold(answer: Json) -> Json:
    """An answer as one comparable value; the message of an error stands apart, as `wording`."""
    out: Json = {"status": answer["status"], "type": answer["type"]}
    if "events" in answer:
        return fold_events(answer["events"], out)
    body = clean(answer.get("json", answer.get("text")))
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        out["wording"] = worded(body["error"].pop("message", None))
    out["body"] = body
    return out


def worded(message: Any) -> Any:
    """A message without the version of pydantic in its links."""
    return PYDANTIC.sub("", message) if isinstance(message, str) else message


def fold_events(events: list[Json], out: Json) -> Json:
    choices: Json = {}
    rest: Json = {}
    kinds: list[str] = []
    for event in events:
        data = event.get("data")
        if "event" in event and kinds[-1:] != [event["event"]]:
            kinds.append(event["event"])
        if not isinstance(data, dict):
            rest["end"] = data
            continue
        for choice in data.get("choices") or []:
            pieces = {key: value for key, value in choice.items() if key != "index"}
            join(choices.setdefault(str(choice.get("index", 0)), {}), pieces)
        for key, value in clean({key: value for key, value in data.items() if key != "choices"}).items():
            if key == "error" and isinstance(value, dict):
                out["wording"] = worded(value.pop("message", None))
            if key == "delta" and isinstance(value, str):
                name = "delta " + event.get("event", "")
                rest[name] = rest.get(name, "") + value
            else:
                rest[key] = value
    out["choices"], out["rest"] = choices, rest
    if kinds:
        out["kinds"] = kinds
    return out


def differences(want: Any, got: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, wanted, found) wherever two folded answers differ."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            if key in want and key in got:
                yield from differences(want[key], got[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}", want.get(key, "missing"), got.get(key, "missing")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from differences(one, other, f"{at}[{index}]")
    elif want != got:
        yield at, want, got


def report(answers: list[Json], wanted: dict[str, Json], decided: dict[str, str]) -> bool:
    """Print what differs and a summary; whether nothing differs that was not decided."""
    failed = worded = allowed = 0
    for got in answers:
        found = list(differences(fold(wanted[got["id"]]), fold(got)))
        hard = [item for item in found if item[0] != ".wording"]
        worded += len(found) > len(hard)
        if not hard:
            continue
        if got["id"] in decided:
            allowed += 1
            continue
        failed += 1
        print(got["id"])
        for at, want, have in hard[:SHOWN_DIFFERENCES]:
            print(f"    {at}: vLLM {shortened(want)}  here {shortened(have)}")
    same = len(answers) - failed - allowed
    print(f"{len(answers)} requests: {same} same, {failed} differ, {allowed} differ as decided; other wording in {worded}")
    return not failed


def shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 160 else text[:157] + "..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("--base", required=True, help="http://HOST:PORT")
    parser.add_argument("--server", required=True, help="a row of servers.json")
    parser.add_argument("--requests", type=Path, default=HERE / "requests.jsonl")
    parser.add_argument("--answers", type=Path, default=HERE / "answers.jsonl")
    parser.add_argument("--decided", type=Path, default=HERE / "decided.json")
    parser.add_argument("--only", default="", help="ids that start so")
    parser.add_argument("--jobs", type=int, default=4)
    args = parser.parse_args()
    todo = [
        item for item in read_lines(args.requests) if item["server"] == args.server and item["id"].startswith(args.only)
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        answers = list(pool.map(lambda item: ask(args.base, item), todo))
    if args.what == "record":
        for answer in answers:
            print(json.dumps(answer, ensure_ascii=False))
        return 0
    wanted = {item["id"]: item for item in read_lines(args.answers)}
    return 0 if report(answers, wanted, json.loads(args.decided.read_text(encoding="utf-8"))) else 1


if __name__ == "__main__":
    sys.exit(main())
