# SPDX-License-Identifier: Apache-2.0
"""What the end of a request says about its conversation, if the request's kv_transfer_params say nothing.
Scheduler's process.

The scheduler knows why a request ended and its tokens, not their text. Two ends say something:

- The answer holds a tool call: its result comes back within seconds, after the same tokens. A model that was trained
  for tools marks a call with a token of its own; the tokenizer, which vLLM has loaded in this process, knows which one
  that is.
- The request is as long as the model allows: nothing can follow it.

All others may go on or not: an answer that ended by itself, one that ran into max_tokens, an aborted one. Calls that a
model writes in plain text are not seen.
"""

import logging

logger = logging.getLogger("vllm.kvscout")

LIKELY, UNLIKELY = "likely", "unlikely"
# How tokenizers name the tokens of a call: those that open it, and (<|eom_id|>, <|call|>) those that end an answer with
# one.
TOOL_TOKENS = (
    "<tool_call>",
    "<tool_calls>",
    "<|tool_call|>",
    "<|tool_call_start|>",
    "<|tool_calls_section_begin|>",
    "<function_call>",
    "<function_calls>",
    "<start_function_call>",
    "<dots_function_call>",
    "<longcat_tool_call>",
    "<minimax:tool_call>",
    "<seed:tool_call>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|eom_id|>",
    "<|call|>",
    "<|action_start|>",
    "<|START_ACTION|>",
    "<|plamo:begin_tool_requests:plamo|>",
)
# A call is at the end of an answer. So many of its last tokens are looked at, which takes some 50 us.
LAST_TOKENS = 4096


def tool_tokens(tokenizer):
    """Ids of those that @tokenizer has as one token; None: no tokenizer."""
    if tokenizer is None:
        return frozenset()
    known = tokenizer.get_vocab()
    return frozenset(known[name] for name in TOOL_TOKENS if name in known)


def of_engine(vllm_config):
    """The hints of an engine. Without a tokenizer they see no tool call; the engine starts all the same."""
    tokens = frozenset()
    try:
        from vllm.tokenizers import cached_tokenizer_from_config

        tokens = tool_tokens(cached_tokenizer_from_config(vllm_config.model_config))
    except Exception as error:  # whatever a tokenizer's own code raises
        logger.info("kvscout: no hints of tool calls, because their tokens are not known: %s", error)
    return Hints(tokens, vllm_config.model_config.max_model_len)


class Hints:
    def __init__(self, tokens, max_tokens):
        """@tokens: ids that mark a tool call. @max_tokens: the model's longest request."""
        self._tokens = frozenset(tokens)
        self._max_tokens = max_tokens

    def of(self, request):
        """A word of Client.finish_hint(), or None. @request has ended."""
        if request.num_tokens >= self._max_tokens:
            return UNLIKELY
        if not self._tokens or request.status.name != "FINISHED_STOPPED":
            return None
        output = request.output_token_ids
        return None if self._tokens.isdisjoint(output[max(0, len(output) - LAST_TOKENS) :]) else LIKELY
