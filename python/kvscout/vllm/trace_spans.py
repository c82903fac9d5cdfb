# SPDX-License-Identifier: Apache-2.0
"""Spans for OpenTelemetry: kvscout.lookup, kvscout.load and kvscout.store, below the span whose traceparent came with the request.

vLLM sets up the exporter in each of its processes, and sends spans on a thread of its own. A span is made here after its end, from times
that are measured anyway. There is none without --otlp-traces-endpoint, without vLLM's tracing, or for a request without a traceparent.
"""

import time


def of_engine(vllm_config):
    """Spans, or None."""
    observability = getattr(vllm_config, "observability_config", None)
    if not getattr(observability, "otlp_traces_endpoint", None):
        return None
    try:
        from vllm.tracing import extract_trace_context, instrument_manual
    except ImportError:
        return None
    return Spans(instrument_manual, extract_trace_context)


class Spans:
    def __init__(self, make, context_of):
        """@make, @context_of: instrument_manual() and extract_trace_context() of vllm.tracing."""
        self._make = make
        self._context_of = context_of

    def lookup(self, request, waited_s, computed, hit, tiers):
        """The scheduler has the answer, @waited_s after it first asked. @tiers: tokens of the hit (in memory, in L2)."""
        end_ns = time.time_ns()
        self._add("lookup", request.trace_headers, end_ns - int(waited_s * 1e9), end_ns, {
            "prompt_tokens": request.num_tokens,
            "computed_tokens": computed,
            "hit_tokens": hit.tokens,
            "hit_tokens_memory": tiers[0],
            "hit_tokens_l2": tiers[1],
            "reason": hit.reason,
        })

    def copied(self, kind, what, done):
        """@kind: load or store. @what: the message that asked for it (metadata.py)."""
        self._add(kind, what.trace, what.began_ns, what.began_ns + done.total_us * 1000, {
            "bytes": done.bytes,
            "chunks": done.chunks,
            "queued_us": done.queued_us,
            "server_us": done.server_us,
            "copy_us": done.copy_us,
            "result": "ok" if done.status == 0 else str(done.error),
        })

    def _add(self, name, headers, start_ns, end_ns, attributes):
        if headers:
            attributes = {f"kvscout.{key}": value for key, value in attributes.items()}
            self._make(f"kvscout.{name}", start_ns, end_ns, attributes, self._context_of(headers))
