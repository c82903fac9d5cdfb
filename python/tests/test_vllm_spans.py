# SPDX-License-Identifier: Apache-2.0
"""Spans of kvscout.vllm: of lookups, loads and stores with a real server, and one in a real OTLP receiver where vLLM's tracing is."""

import http.server
import importlib.util
import os
import sys
import threading
import time
import types
import unittest
from unittest import mock

import kvscout
from kvscout.vllm import trace_spans
from pages import CHUNK_TOKENS, hashes_of
from rig import wait_for
from vllm_rig import Engine, modules_of_vllm, request

IDS = list(range(4))
HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def config(endpoint):
    return types.SimpleNamespace(observability_config=types.SimpleNamespace(otlp_traces_endpoint=endpoint))


class Spans(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)
        self.made = {}  # by name: (start, end, attributes, context)
        own = trace_spans.Spans(lambda name, *about: self.made.__setitem__(name, about), lambda headers: ("context", headers["traceparent"]))
        self.engine = Engine(self, self.server.endpoint, 0, spans=own)
        self.begin_ns = time.time_ns()

    def about(self, name):
        start, end, attributes, context = self.made[name]
        self.assertTrue(self.begin_ns <= start <= end, (self.begin_ns, start, end))
        self.assertEqual(context, ("context", HEADERS["traceparent"]))
        return attributes

    def copied(self, name, **messages):
        meta = self.engine.messages.Metadata(**messages)
        self.engine.worker.begin_step(meta)
        self.engine.worker.start_loads(meta)
        self.engine.worker.wait_for_save(meta)
        wait_for(lambda: self.engine.worker.finished(set()) and name in self.made, what=f"the span {name}")
        return self.about(name)

    def answer(self, asked):
        found = []
        wait_for(lambda: found.append(self.engine.scheduler.matched_tokens(asked, 0)) or found[-1] is not None, what="an answer")
        return found[-1]

    def ask(self, headers):
        asked = request("a", CHUNK_TOKENS + 1)
        asked.trace_headers = headers
        asked.block_hashes = hashes_of("p", 1) * 4  # of each block; the last one of a chunk is its key
        self.engine.scheduler.on_new_request(asked)
        self.assertEqual(self.answer(asked), CHUNK_TOKENS)
        self.engine.scheduler.allocated(asked, (IDS,), CHUNK_TOKENS)
        return self.engine.scheduler.build_meta(types.SimpleNamespace(num_scheduled_tokens={}, preempted_req_ids=set())).loads

    def test_a_request_with_a_trace_has_a_span_of_each_kind(self):
        store = self.engine.messages.Store(1, "p", 0, hashes_of("p", 1), 0, {0: IDS}, 0, None, trace=HEADERS)
        stored = self.copied("kvscout.store", stores=[store])
        self.assertEqual((stored["kvscout.chunks"], stored["kvscout.result"]), (1, "ok"))
        loads = self.ask(HEADERS)
        looked = self.about("kvscout.lookup")
        self.assertEqual(looked["kvscout.hit_tokens"], CHUNK_TOKENS)
        self.assertEqual((looked["kvscout.hit_tokens_memory"], looked["kvscout.hit_tokens_l2"]), (CHUNK_TOKENS, 0))
        loaded = self.copied("kvscout.load", loads=loads)
        self.assertEqual(loaded["kvscout.bytes"], stored["kvscout.bytes"])
        self.assertLessEqual({"kvscout.queued_us", "kvscout.server_us", "kvscout.copy_us"}, set(loaded))

    def test_a_request_without_a_trace_has_none(self):
        self.engine.store("p")
        self.assertEqual([load.trace for load in self.ask(None)], [None])
        self.assertEqual(self.made, {})

    def test_without_an_endpoint_or_without_tracing_there_are_none(self):
        self.assertIsNone(trace_spans.of_engine(types.SimpleNamespace()))
        self.assertIsNone(trace_spans.of_engine(config(None)))
        with mock.patch.dict(sys.modules, modules_of_vllm()):  # a vllm that has no module of this name
            self.assertIsNone(trace_spans.of_engine(config("http://127.0.0.1:1")))


def has_tracing():
    return all(importlib.util.find_spec(name) for name in ("vllm", "opentelemetry"))


@unittest.skipUnless(has_tracing(), "vLLM and opentelemetry are not installed")
class Receiver(unittest.TestCase):
    def test_a_receiver_gets_the_span_below_that_of_the_request(self):
        from opentelemetry import trace
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        from vllm.tracing import init_tracer

        received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                received.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        receiver = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(receiver.server_close)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        self.addCleanup(receiver.shutdown)
        endpoint = f"http://127.0.0.1:{receiver.server_port}/v1/traces"
        with mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}):
            init_tracer("test", endpoint)
        asked = types.SimpleNamespace(trace_headers=HEADERS, num_tokens=300)
        trace_spans.of_engine(config(endpoint)).lookup(asked, 0.25, 0, kvscout.Hit(256, reason="hit"), (256, 0))
        trace.get_tracer_provider().force_flush()
        (span,) = received[0].resource_spans[0].scope_spans[0].spans
        _, trace_id, parent, _ = HEADERS["traceparent"].split("-")
        self.assertEqual((span.name, span.trace_id.hex(), span.parent_span_id.hex()), ("kvscout.lookup", trace_id, parent))
        self.assertEqual(span.end_time_unix_nano - span.start_time_unix_nano, 250_000_000)
        self.assertIn(("kvscout.hit_tokens", 256), [(item.key, item.value.int_value) for item in span.attributes])


if __name__ == "__main__":
    unittest.main()
