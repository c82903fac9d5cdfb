# SPDX-License-Identifier: Apache-2.0
"""A receiver of OpenTelemetry's traces, as an operator runs one: OTLP over HTTP."""

import http.server
import threading


class Receiver:
    def __init__(self):
        self._spans = []
        self._came = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def _handler(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                receiver._take(request)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        return Handler

    def _take(self, request):
        with self._came:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self._spans += scope.spans
            self._came.notify_all()

    def spans_of(self, trace_id, names, seconds):
        """{name: (span, {attribute: value})} of a trace: as soon as it has all of @names, or what came in @seconds."""

        def found():
            return {span.name: span for span in self._spans if span.trace_id.hex() == trace_id}

        with self._came:
            self._came.wait_for(lambda: set(names) <= set(found()), seconds)
            return {name: (span, {a.key: _value(a.value) for a in span.attributes}) for name, span in found().items()}

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


def _value(value):
    return getattr(value, value.WhichOneof("value"))
