"""Instructions of making requests ready, from the body to the `Call`, counted by valgrind; without it, best CPU times.

    .venv/bin/python bench/prepare.py [--times] [--tokenizer NAME]

One thread, no server. Shapes: a text with few fields; the same as vLLM's load generator sends it; with a system message and a
temperature; with everything that samples; a chat of several turns; a completion of a text, of token ids; a field that asks for
the long way; ten tools, on a server that reads calls. `--tokenizer` takes one of the tokenizers that set-up fetches, with its
chat template, in place of SmolLM2's.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fastfront._speedups.call import Call
from fastfront._speedups.vocabulary import Vocabulary
from fastfront.cli.serve import add_arguments, parse, serve_config
from fastfront.config import cache_folder
from fastfront.openai.chat import prepare_chat
from fastfront.openai.completions import prepare_completion
from fastfront.openai.serving import Serving, build_serving
from fastfront.render.lookup import find_chat_templates
from fastfront.streams.prepared import PreparedCall
from tools.scratch import scratch_folder

Prepare = Callable[[bytes, Callable[[str], str | None], Serving], PreparedCall]
REQUESTS = 300
ROUNDS = 15  # of which the fastest counts
_COUNTED = "FASTFRONT_COUNTED"  # the library that turns counting on and off, set in the counted process
_STREAM = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
_SAMPLING = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "presence_penalty": 0.5, "seed": 7, "stop": ["END"]}
_CALLS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
_PROPERTIES = {"path": {"type": "string", "description": "Where to look."}, "depth": {"type": "integer"}}
_FUNCTION = {"description": "Looks for things that are there. " * 8, "parameters": {"type": "object", "properties": _PROPERTIES}}
_TOOLS = [{"type": "function", "function": {"name": f"look_{k}", **_FUNCTION}} for k in range(10)]
HEADERS = {"content-type": "application/json", "x-request-id": "r"}


def shapes(text: str) -> dict[str, dict[str, Any]]:
    """Requests of one text, by shape."""
    user = {"role": "user", "content": text}
    parts = {"role": "user", "content": [{"type": "text", "text": text}]}
    system = {"role": "system", "content": "You are a helpful assistant."}
    turns = [{"role": role, "content": f"Turn {k} of this chat."} for k in range(4) for role in ("user", "assistant")]
    return {
        "text": {"messages": [user], "max_tokens": 1, **_STREAM},
        "parts": {"model": "m", "messages": [parts], "max_completion_tokens": 1, **_STREAM},
        "system": {"messages": [system, user], "max_tokens": 1, "temperature": 0.7, "stream": True},
        "sampling": {"messages": [user], "max_tokens": 1, **_SAMPLING, **_STREAM},
        "turns": {"messages": [system, *turns, user], "max_tokens": 1, **_STREAM},
        "completion": {"model": "m", "prompt": text, "max_tokens": 1, "temperature": 0.0, **_STREAM},
        "token ids": {"model": "m", "prompt": [ord(letter) for letter in text[:30]], "max_tokens": 1, **_STREAM},
        "long way": {"messages": [user], "max_tokens": 1, "logit_bias": {"5": 1.0}, **_STREAM},
        "tools": {"messages": [system, user], "max_tokens": 1, "tools": _TOOLS, **_STREAM},
    }


def header(name: str) -> str | None:
    return HEADERS[name] if name in HEADERS else None  # noqa: SIM401 - docs/structures.md, rules between threads


def work(measure: Callable[[str, Callable[[Any], object], list[Any]], None], tokenizer: str | None) -> None:
    """Everything that is measured, each on so many different requests."""
    parser = ArgumentParser()
    add_arguments(parser)
    model = [str(cache_folder() / "models" / "smollm2"), "--served-model-name", "m"]
    if tokenizer is not None:
        folder = cache_folder() / "tokenizers" / tokenizer
        template = find_chat_templates(folder, json.loads((folder / "tokenizer_config.json").read_text()))["default"]
        model += ["--tokenizer", str(folder), "--chat-template", template]
    plain, calling = (build_serving(serve_config(parse([*model, *flags], parser), parser)) for flags in ([], _CALLS))
    vocabulary = Vocabulary.from_tokenizer(plain.tokenizer.raw)
    words = (Path(__file__).parent / "load" / "words.txt").read_text().split()
    texts = [" ".join(words[(k * 7 + i * (k + 1)) % len(words)] for i in range(30)) for k in range(REQUESTS)]
    for shape, fields in shapes("").items():
        prepare = prepare_chat if "messages" in fields else prepare_completion
        serving = calling if "tools" in fields else plain
        bodies = [json.dumps(shapes(text)[shape]).encode() for text in texts]
        measure(f"{shape}: prepare", partial(_prepare, prepare, serving), bodies)
        prepared = [prepare(body, header, serving) for body in bodies]
        measure(f"{shape}: Call", lambda call: Call(call, vocabulary, None, [0], 0, plain.fingerprint, 1.0), prepared)


def _prepare(prepare: Prepare, serving: Serving, body: bytes) -> PreparedCall:
    return prepare(body, header, serving)


def timed(name: str, function: Callable[[Any], object], items: list[Any]) -> None:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time()
        for item in items:
            function(item)
        best = min(best, time.thread_time() - began)
    print(f"{name:22} {best / len(items) * 1e6:10.1f} us", flush=True)


def counted(library: ctypes.CDLL) -> Callable[[str, Callable[[Any], object], list[Any]], None]:
    def measure(name: str, function: Callable[[Any], object], items: list[Any]) -> None:
        for _ in range(2):  # what is kept of them is known then
            for item in items:
                function(item)
        library.counting_on()
        for item in items:
            function(item)
        library.counting_off(name.encode())

    return measure


def count(arguments: list[str]) -> None:
    """Runs this program under callgrind and prints what it counted."""
    with scratch_folder("prepare") as folder:
        library = folder / "counting.so"
        source = Path(__file__).with_name("counting.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        callgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        env = {**os.environ, _COUNTED: str(library)}
        subprocess.run([*callgrind, sys.executable, __file__, *arguments], check=True, env=env)
        for path in sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:])):
            text = path.read_text(errors="replace")
            named, total = re.search(r"Client Request: (.*)", text), re.search(r"^totals: (\d+)", text, re.M)
            if named and total:
                print(f"{named[1]:22} {int(total[1]) / REQUESTS:10,.0f} instructions")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/prepare.py", description="What making chat requests ready takes.")
    parser.add_argument("--times", action="store_true", help="CPU times in place of instructions: needs no valgrind")
    parser.add_argument("--tokenizer", help="the folder's name")
    arguments = parser.parse_args()
    times, tokenizer = arguments.times, arguments.tokenizer
    library = os.environ.get(_COUNTED)
    if library is None and not times:
        if shutil.which("valgrind") is None:
            parser.error("valgrind is not installed: --times")
        count(sys.argv[1:])
        return 0
    # Not the main thread, which has made what is shared: request threads have not either.
    thread = threading.Thread(target=work, args=(timed if library is None else counted(ctypes.CDLL(library)), tokenizer))
    thread.start()
    thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
