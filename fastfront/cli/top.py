"""`fastfront top`: what a running server is doing, from its /metrics."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
import urllib.parse
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from fastfront.cli.top_view import View
from fastfront.errors import SetupError
from fastfront.metrics.scrape import Scrape, Span
from fastfront.metrics.scrape import parse as parse_page

TIMEOUT_S = 5.0
MAX_PAGE_BYTES = 64 << 20
SHORTEST_S = 0.1
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"  # other screen, no cursor, long lines cut
HOME, CLEAR_LINE, CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", metavar="URL", help="the server (default: %(default)s)")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between looks (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="print one frame, of one interval, and leave")
    parser.add_argument("--no-color", action="store_true", help="without colors (also: NO_COLOR in the environment)")


def parse(words: Sequence[str], parser: ArgumentParser) -> Namespace:
    args = parser.parse_args(words)
    if not SHORTEST_S <= args.interval < float("inf"):
        parser.error(f"--interval {args.interval:g}: at least {SHORTEST_S:g}")
    if not _address(args.url):
        parser.error(f"--url {args.url}: http://HOST:PORT or https://HOST:PORT")
    return args


def run(args: Namespace, _parser: ArgumentParser) -> int:
    """Until q, Ctrl-C or, with --once, one frame. Raises SetupError if there is no such server at the start."""
    url = args.url.rstrip("/")
    terminal = sys.stdout.isatty()
    view = View(url, terminal and not args.no_color and not os.environ.get("NO_COLOR"))
    before = read(url)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal must be left as it was
    try:
        if args.once:
            time.sleep(args.interval)
            print("\n".join(view.frame(Span(before, read(url)), time.strftime("%H:%M:%S"))), flush=True)
        elif terminal:
            with screen(sys.stdout) as keys:
                watch(url, view, before, args.interval, keys, True)
        else:
            watch(url, view, before, args.interval, None, False)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # Nobody reads any more; what is still buffered must not be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _address(url: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port; None for what is no address of a server."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.scheme, parts.hostname, parts.port
    except ValueError:
        pass
    return None


def read(url: str) -> Scrape:
    """The server's metrics as of now. Raises SetupError naming --url."""
    import http.client  # noqa: PLC0415 - slow to import, and this command's alone

    address = _address(url)
    assert address is not None
    scheme, host, port = address
    connect = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = connect(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", urllib.parse.urlsplit(url).path + "/metrics")
        answer = connection.getresponse()
        page = answer.read(MAX_PAGE_BYTES)
        if answer.status != http.client.OK:
            raise SetupError(f"--url {url}: /metrics answers {answer.status}")
        return parse_page(page.decode(), time.monotonic())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise SetupError(f"--url {url}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()


def watch(url: str, view: View, before: Scrape, interval_s: float, keys: TextIO | None, terminal: bool) -> None:
    """Draws a frame every interval until a key says to leave."""
    while not pressed(keys, interval_s):
        try:
            now = read(url)
        except SetupError as error:
            draw([str(error)], terminal)
            continue
        draw(view.frame(Span(before, now), time.strftime("%H:%M:%S")), terminal)
        before = now


def pressed(keys: TextIO | None, wait_s: float) -> bool:
    """Waits; whether q was pressed meanwhile."""
    if keys is None:
        time.sleep(wait_s)
        return False
    until = time.monotonic() + wait_s
    while (left := until - time.monotonic()) > 0:
        if select.select([keys], [], [], left)[0] and os.read(keys.fileno(), 1).lower() in (b"q", b""):
            return True
    return False


def draw(lines: Sequence[str], terminal: bool) -> None:
    """Over the frame before, as much as fits; or below it."""
    if terminal:
        shown = lines[: max(1, shutil.get_terminal_size().lines - 1)]
        text = HOME + "".join(f"{line}{CLEAR_LINE}\r\n" for line in shown) + CLEAR_REST
    else:
        text = "\n".join(lines) + "\n\n"
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def screen(out: TextIO) -> Iterator[TextIO | None]:
    """The terminal's other screen, keys without Enter; as it was afterwards. Gives where keys come from, if they do."""
    keys = sys.stdin if sys.stdin.isatty() else None
    kept = termios.tcgetattr(keys) if keys is not None else None
    out.write(ENTER)
    try:
        if keys is not None:
            tty.setcbreak(keys)
        yield keys
    finally:
        if keys is not None and kept is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, kept)
        out.write(LEAVE)
        out.flush()
