"""What a validated, rendered and tokenized request is: the record handed from the OpenAI layer to a lane."""
from libc.stdint cimport int64_t


cdef class PreparedPrompt:
    cdef public bytes ids                       # packed (token_ids.pxd), within the vocabulary
    cdef public int64_t max_tokens
    cdef public str echo_text
    cdef public object text                     # str or None
    cdef tuple values(self)


cdef class PreparedCall:
    cdef public str kind                        # "chat" or "completion"
    cdef public str external_id                 # chatcmpl-<rid> or cmpl-<rid>
    cdef public int64_t created                 # unix seconds
    cdef public str model                       # the first served name, or the adapter's
    cdef public list prompts                    # of PreparedPrompt
    cdef public dict sampling
    cdef public int64_t n
    cdef public object seed                     # int or None
    cdef public bint stream
    cdef public bint include_usage
    cdef public bint continuous_usage
    cdef public bint return_token_ids
    cdef public bint prompt_details             # usage says how many of the prompt's tokens were cached
    cdef public object stream_interval          # tokens per event of a choice, but for its first and last
    cdef public bint metrics                    # times of the request; only answers with one choice have them
    cdef public list stop                       # stop strings
    cdef public bint include_stop_str_in_output
    cdef public object min_tokens
    cdef public bint skip_special_tokens
    cdef public bint hide_output                # completions: echo with max_tokens 0 generates one token that is not shown
    cdef public object logprobs                 # alternatives per token to show, -1: all the engine sends; None: no logprobs
    cdef public object prompt_logprobs          # the same for the prompt's tokens
    cdef public bint echo_logprobs              # completions: the prompt's tokens come first in `logprobs`
    cdef public bint tokens_as_ids              # logprobs show tokens as "token_id:N"
    cdef public str role                        # chat: role of the answer
    cdef public str echo_content                # chat echo: text of the last message when its role is `role`
    cdef public object sink                     # makes the answer's bytes in Python; None: the native chat and completion shapes
    cdef public object priority
    cdef public object cache_salt               # str or None
    cdef public object lora_request             # bytes as they go to the engine, or None: no adapter
    cdef public object reasoning_ended          # whether the answer begins after the model's reasoning; None: unknown, or it does none
    cdef public object reasoning_kwargs         # for the engine's own reasoning parser, or None
    cdef public object data_parallel_rank       # int or None
    cdef public object steps                    # beam search: it is these steps that run, not the call itself; or None
