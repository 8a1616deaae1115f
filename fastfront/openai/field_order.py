"""The order in which vLLM looks at the fields of a body: the first field that is wrong is the one that an error names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _places(names: str) -> Mapping[str, int]:
    return MappingProxyType({name: place for place, name in enumerate(names.split())})


CHAT = _places(
    "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty "
    "response_format seed stop stream stream_options temperature top_p tools tool_choice reasoning_effort thinking_token_budget "
    "include_reasoning parallel_tool_calls user use_beam_search top_k min_p repetition_penalty watermarking length_penalty "
    "stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens "
    "truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo "
    "add_generation_prompt continue_final_message add_special_tokens documents chat_template chat_template_kwargs "
    "media_io_kwargs mm_processor_kwargs structured_outputs priority request_id session_id return_tokens_as_token_ids "
    "return_token_ids routed_experts_prompt_start return_token_offsets return_prompt_text mm_payload return_mm_kwargs "
    "cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection stream_interval"
)
COMPLETION = _places(
    "model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options "
    "suffix temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids "
    "include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens "
    "truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs logprob_token_ids bad_words prompt_embeds "
    "add_special_tokens response_format structured_outputs priority request_id session_id return_tokens_as_token_ids "
    "return_token_ids routed_experts_prompt_start return_token_offsets mm_payload return_mm_kwargs cache_salt "
    "kv_transfer_params ec_transfer_params vllm_xargs repetition_detection thinking_token_budget stream_interval"
)
RESPONSES = _places(
    "background include input instructions max_output_tokens max_tool_calls metadata model logit_bias parallel_tool_calls "
    "previous_response_id prompt reasoning include_reasoning service_tier store stream temperature text tool_choice tools "
    "top_logprobs top_p top_k min_p truncation user skip_special_tokens include_stop_str_in_output presence_penalty "
    "frequency_penalty prompt_cache_key watermarking request_id session_id media_io_kwargs mm_processor_kwargs priority "
    "mm_payload return_mm_kwargs cache_salt enable_response_messages previous_input_messages structured_outputs "
    "repetition_penalty seed stop stop_token_ids ignore_eos vllm_xargs kv_transfer_params ec_transfer_params "
    "chat_template_kwargs"
)
MESSAGES = _places(
    "model messages max_tokens metadata output_config thinking stop_sequences stream system temperature tool_choice tools "
    "top_k top_p mm_payload return_mm_kwargs cache_salt watermarking kv_transfer_params ec_transfer_params vllm_xargs "
    "chat_template_kwargs"
)
