"""The wire structures against recorded messages of real peers, and against garbage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import protocol
from engine.mocking import fragments
from engine.protocol import Codec, EngineCoreRequest, RequestFault

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
NAMES = sorted(path.stem for path in VECTORS.glob("*.json"))


def frames(name: str) -> list[bytes]:
    data = json.loads((VECTORS / f"{name}.json").read_text())
    return [bytes.fromhex(frame) for frame in data["frames"]]


def named(part: str) -> list[str]:
    found = [name for name in NAMES if part in name]
    assert found
    return found


def add(name: str) -> EngineCoreRequest:
    request = Codec().decode_add(frames(name)[1])
    assert isinstance(request, EngineCoreRequest)
    return request


def test_all_vectors_are_there() -> None:
    assert len(NAMES) == 37


@pytest.mark.parametrize("name", named("_add_"))
def test_every_recorded_request_decodes(name: str) -> None:
    request = add(name)
    plain = msgspec.msgpack.decode(frames(name)[1], strict=False)
    assert request.request_id == plain[0]
    assert request.prompt_token_ids == plain[1]
    assert request.arrival_time == plain[5]
    params = request.sampling_params
    assert params is not None
    assert params.max_tokens == plain[3].get("max_tokens", 16)
    assert params.temperature == plain[3].get("temperature", 1.0)


def test_parameters_of_a_full_request() -> None:
    params = add("10_add_python_chat_full").sampling_params
    assert params is not None
    assert (params.seed, params.top_k, params.logprobs, params.eos_token_id) == (42, 20, 2, 151645)
    assert params.stop_token_ids == [151643]
    assert sorted(params.all_stop_token_ids) == [151643, 151645]
    assert params.logit_bias == {100: -5.0, 7: 3.5}
    assert params.structured_outputs is not None


def test_parameters_of_many_kinds() -> None:
    params = add("12_add_python_many_params").sampling_params
    assert params is not None
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (0.25, 0.5, 1.1)
    assert params.min_tokens == 2
    assert params.eos_token_id is None
    assert params.allowed_token_ids == [1, 2, 3]
    assert params.bad_words_token_ids == [[7975], [15229]]
    assert params.extra_args == {"mode": "stopid"}


def test_stop_ids_join_all_stop_ids_and_seed_minus_one_is_none() -> None:
    body = ["r", [1], None, {"stop_token_ids": [9], "_all_stop_token_ids": [2], "seed": -1}, None, 0.0, None, None, None]
    request = Codec().decode_add(msgspec.msgpack.encode(body))
    assert isinstance(request, EngineCoreRequest)
    params = request.sampling_params
    assert params is not None
    assert sorted(params.all_stop_token_ids) == [2, 9]
    assert params.seed is None


@pytest.mark.parametrize("name", named("_output_"))
def test_every_recorded_output_survives_a_round_trip(name: str) -> None:
    message = frames(name)[0]
    decoded = msgspec.msgpack.decode(message, type=protocol.EngineCoreOutputs)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(decoded))
    plain = msgspec.msgpack.decode(message)
    for output in plain[1]:
        del output[18:]
    assert again == plain


def test_the_error_map_is_the_nineteenth_element() -> None:
    error = protocol.OutputError("engine_paused", "Generation is paused. Please retry after it resumes.", True)
    output = protocol.FailedOutput("r", [], finish_reason=protocol.FinishReason.ERROR, error=error)
    message = protocol.EngineCoreOutputs(0, [output], None, 1.0, finished_requests=["r"])
    assert Codec().encode(message) == frames("37_output_error_033")[0]


def test_a_buffer_can_be_used_again() -> None:
    codec, buffer = Codec(), bytearray()
    for tokens in ([1] * 500, [], [2, 3]):
        message = protocol.EngineCoreOutputs(1, [protocol.EngineCoreOutput("r", tokens)])
        codec.encode_into(message, buffer)
        assert bytes(buffer) == codec.encode(message)


def test_scheduler_stats_have_the_recorded_keys() -> None:
    recorded = msgspec.msgpack.decode(frames("16_output_first_token_stats")[0])[2]
    ours = msgspec.msgpack.decode(Codec().encode(protocol.SchedulerStats()))
    assert ours.keys() == recorded.keys()
    assert ours["prefix_cache_stats"].keys() == recorded["prefix_cache_stats"].keys()
    assert len(ours) == 18


def test_the_ready_payload_has_the_recorded_keys() -> None:
    recorded = msgspec.msgpack.decode(frames("06_input_ready_payload")[0])
    ours = protocol.ReadyPayload(
        max_model_len=1, num_gpu_blocks=1, block_size=1, dtype="float32", max_num_seqs=1, max_num_batched_tokens=1,
        instance_id="x",
    )  # fmt: skip
    assert msgspec.msgpack.decode(Codec().encode(ours)).keys() == recorded.keys()


def test_handshake_messages() -> None:
    codec = Codec()
    hello = protocol.Status("HELLO", local=False, headless=True)
    assert codec.encode(hello) == frames("01_handshake_hello")[0]
    assert codec.encode(protocol.Status("READY", False, True)) == frames("04_handshake_ready")[0]
    init = codec.decode_init(frames("03_handshake_init_moe_dp2")[0])
    assert len(init.addresses.inputs) == len(init.addresses.outputs) == 2
    assert init.addresses.coordinator_input == "tcp://127.0.0.1:36313"


def test_utility_messages() -> None:
    codec = Codec()
    call = codec.decode_utility(frames("07_utility_request")[1])
    assert call is not None
    assert (call.client_index, call.call_id, call.method, call.args) == (
        0, 11912801431093776881, "get_supported_tasks", [],
    )  # fmt: skip
    call.call_id = 4242
    reply = protocol.utility_reply(call, ["generate"], 3383.911496401, 0)
    assert codec.encode(reply) == frames("08_utility_response")[0]


def test_abort_message() -> None:
    ids = Codec().decode_abort(frames("15_abort")[1])
    assert ids == ["0_chatcmpl-9279d3cd78f33e93-9baf61ee", "1_chatcmpl-9279d3cd78f33e93-9baf61ee"]


@pytest.mark.parametrize("name", named("_add_"))
def test_a_truncated_request_is_a_fault_with_its_id_as_soon_as_that_is_whole(name: str) -> None:
    codec, message = Codec(), frames(name)[1]
    whole = add(name).request_id
    end_of_id = message.index(whole.encode()) + len(whole.encode())
    for length in range(len(message)):
        fault = codec.decode_add(message[:length])
        assert isinstance(fault, RequestFault)
        assert fault.request_id == (whole if length >= end_of_id else None)


BAD_PARAMS: list[dict[str, Any]] = [
    {"max_tokens": "8"},
    {"logit_bias": {"1": 2.0}},
    {"temperature": "hot"},
    {"stop_token_ids": 5},
    {"seed": 1 << 63, "_all_stop_token_ids": ["x"]},
]


@pytest.mark.parametrize("params", BAD_PARAMS)
def test_wrong_types_are_a_fault_that_names_the_request(params: dict[str, Any]) -> None:
    body = ["r-7", [1], None, params, None, 0.0, None, None, None]
    fault = Codec().decode_add(msgspec.msgpack.encode(body))
    assert isinstance(fault, RequestFault)
    assert fault.request_id == "r-7"


@given(st.binary(max_size=80))
def test_no_bytes_make_a_decoder_raise(data: bytes) -> None:
    codec = Codec()
    codec.decode_add(data)
    codec.decode_abort(data)
    codec.decode_utility(data)


@given(st.integers(-(2**63), 2**64 - 1))
def test_packed_integers_are_msgpack(value: int) -> None:
    assert msgspec.msgpack.decode(fragments.pack_int(value)) == value


@given(st.text(max_size=300))
def test_packed_strings_are_msgpack(value: str) -> None:
    assert msgspec.msgpack.decode(fragments.pack_str(value)) == value


@pytest.mark.parametrize("finish", [None, 0, 1])
@pytest.mark.parametrize("first", [None, (1.5, 2.5, 300)])
def test_assembled_messages_are_what_the_structures_encode(finish: int | None, first: tuple[float, float, int] | None) -> None:
    output = fragments.output_head("id") + fragments.pack_int(70000) + fragments.output_tail(finish, first)
    data = fragments.message(3, 1, output, 9.25)
    message = msgspec.msgpack.decode(data, type=protocol.EngineCoreOutputs)
    expected = protocol.EngineCoreOutput("id", [70000], finish_reason=finish)
    if first is not None:
        expected.events = [protocol.Event(1, 1.5), protocol.Event(2, 2.5)]
        expected.prefill_stats = protocol.PrefillStats(300, 300)
    assert message == protocol.EngineCoreOutputs(3, [expected], None, 9.25, weight_version="default")
