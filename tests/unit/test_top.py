"""What `fastfront top` makes of two pages of metrics."""

from __future__ import annotations

import re

import pytest

from fastfront.cli.main import main
from fastfront.cli.top_view import View, milliseconds
from fastfront.metrics.scrape import Scrape, Span, parse

PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} 3
vllm:num_requests_running{{engine="1",model_name="m"}} 4
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0
vllm:num_requests_waiting{{engine="1",model_name="m"}} 2
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="1",model_name="m"}} 0.95
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
vllm:generation_tokens_total{{engine="1",model_name="m"}} 500
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {tokens}
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {half}
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="0.1"}} {fast}
vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="0.2"}} {all}
vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="+Inf"}} {all}
vllm:time_to_first_token_seconds_count{{engine="0",model_name="m"}} {all}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="m"}} 5
# TYPE fastfront:live_streams gauge
fastfront:live_streams{{lane="0"}} 7
# TYPE fastfront:lane_busy_seconds counter
fastfront:lane_busy_seconds_total{{lane="0"}} {busy}
# TYPE fastfront:engine_up gauge
fastfront:engine_up{{engine="0"}} 1
fastfront:engine_up{{engine="1"}} 0
# TYPE fastfront:queue gauge
fastfront:queue{{queue="access_log"}} 12
"""


def page(at_s: float, **values: float) -> Scrape:
    return parse(PAGE.format(**values), at_s)


@pytest.fixture
def span() -> Span:
    """Ten seconds."""
    before = page(5.0, tokens=1000, half=0, fast=10, all=10, busy=1.0)
    return Span(before, page(15.0, tokens=3000, half=500, fast=10, all=20, busy=8.5))


def test_drafts_have_a_line() -> None:
    page = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total {}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total {}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total {}
"""
    before, now = parse(page.format(10, 30, 20), 5.0), parse(page.format(30, 90, 50), 15.0)
    lines = View("http://x", color=False).frame(Span(before, now), "12:00:00")
    assert "drafts/s 2   accepted 50%   tokens per draft 2.50" in lines
    assert not [line for line in View("http://x", color=False).frame(Span(now, now), "12:00:00") if "drafts" in line]


def test_rates_and_shares(span: Span) -> None:
    lines = View("http://x", color=False).frame(span, "12:00:00")
    assert lines[0].split() == ["fastfront", "top", "http://x", "m", "12:00:00"]
    assert "streams 7" in lines[2]
    assert "waiting 2" in lines[2]
    assert "tokens/s 200" in lines[2]
    (lane,) = (line.split() for line in lines if re.match(r" +0 .*░", line) and "up" not in line and "lost" not in line)
    assert lane[:2] == ["0", "7"]
    assert "75%" in lane
    first, second = (line.split() for line in lines if line.endswith(("up", "lost")))
    assert (first[0], first[1], first[-1]) == ("0", "3", "up")
    assert "25%" in first, "of the looked-up tokens were cached"
    assert (second[0], second[1], second[2], second[-1]) == ("1", "4", "2", "lost")
    assert "95%" in second
    assert lines[-1] == "queues  access_log 12"
    assert "\x1b" not in "".join(lines)


def test_colors_change_nothing_else(span: Span) -> None:
    plain, colored = (View("u", color).frame(span, "t") for color in (False, True))
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in colored] == plain
    assert "\x1b[31m" in "".join(colored), "a full cache and a lost engine are red"


def test_quantiles_are_those_of_the_time_in_between(span: Span) -> None:
    """Ten observations came, all between 0.1 and 0.2 s."""
    name = "vllm:time_to_first_token_seconds"
    half, most = span.bucket(0.5, name), span.bucket(1.0, name)
    assert half is not None
    assert most is not None
    assert (half.low, half.high) == (0.1, 0.2)
    assert (half.value, most.value) == (pytest.approx(0.15), pytest.approx(0.2))
    assert Span(span.now, span.now).bucket(0.5, name) is None
    assert span.bucket(0.5, "vllm:nothing") is None


@pytest.mark.parametrize(
    ("counts", "text"),
    [((9, 9, 9), "< 10 ms"), ((0, 9, 9), "15 ms"), ((0, 0, 9), "> 20 ms"), ((0, 0, 0), "-")],
)
def test_only_what_is_known_is_shown(counts: tuple[int, int, int], text: str) -> None:
    """All observations in a histogram's lowest bucket may be much less than half of its bound."""
    rows = zip(("0.01", "0.02", "+Inf"), counts, strict=True)
    page = "# TYPE h histogram\n" + "".join(f'h_bucket{{le="{bound}"}} {count}\n' for bound, count in rows)
    found = Span(Scrape(0.0), parse(page + f"h_count {counts[2]}\nh_sum 1\n", 1.0)).bucket(0.5, "h")
    assert milliseconds(found) == text


def test_a_server_started_anew_counts_from_zero() -> None:
    old, new = page(1.0, tokens=9000, half=0, fast=5, all=9, busy=50), page(2.0, tokens=10, half=0, fast=1, all=1, busy=1)
    assert Span(old, new).grown("vllm:generation_tokens_total", engine="0") == 10
    assert Span(old, new).bucket(0.5, "vllm:time_to_first_token_seconds") is None


def test_a_server_that_tells_nothing_is_a_frame_too() -> None:
    lines = View("u", False).frame(Span(Scrape(0.0), Scrape(1.0)), "t")
    assert "streams 0" in lines[2]
    assert not [line for line in lines if "lane" in line or "engine" in line]


@pytest.mark.parametrize("words", [["--interval", "0"], ["--interval", "nan"], ["--url", "127.0.0.1:8000"], ["--url", "http://x:port"]])
def test_bad_flags(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["top", *words])
    assert left.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--url", "http://127.0.0.1:9"]) == 1
    assert "--url http://127.0.0.1:9" in capsys.readouterr().err
