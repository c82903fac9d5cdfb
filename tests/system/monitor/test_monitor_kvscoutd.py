#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""test_monitor_kvscoutd.py KVSCOUTD: what an operator's tools see of kvscoutd --metrics, with Python's own HTTP client. Prints TAP."""
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

LINE = re.compile(r'^(kvscout_[a-z0-9_]+)(\{(?:[a-z_0-9]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? ([0-9.]+|\+Inf)$')
ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE_S = 300  # for what hangs


class Server:
    """kvscoutd on a private endpoint; its log goes to a file. A case that fails leaves it to end_all()."""

    living = []

    def __init__(self, program, folder, *options):
        self.program = program
        self.log = open(folder + "/log", "wb")
        self.process = subprocess.Popen(
            [program, "--listen", "ipc://" + folder + "/s", "--l1_bytes", "16Mi", *options],
            stdout=subprocess.PIPE, stderr=self.log)
        Server.living.append(self.process)
        self.ready = self.process.stdout.readline().decode()

    @classmethod
    def end_all(cls):
        for process in cls.living:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)
        cls.living.clear()

    def text(self):
        """Read from a position of its own: kvscoutd has that of self.log, and writes where it is."""
        with open(self.log.name, "rb") as log:
            return log.read().decode()

    def logged(self, pattern):
        """A thread of its own writes the log: the line may come after what it tells of."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = re.search(pattern, self.text())
            if found:
                return found
            assert time.monotonic() < end, self.text()
            time.sleep(0.01)

    def address(self):
        return self.logged(r"metrics on (http://\S+)/metrics").group(1)

    def end(self):
        """Its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.log.close()
        return status


def get(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read().decode()


def read_page(page):
    """{series: value}; fails if a line is not what the format allows."""
    series, kinds, families = {}, {}, []
    for line in page.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert rest, line
            if what == "TYPE":
                kinds[name] = rest
                families.append(name)
            continue
        match = LINE.match(line)
        assert match, line
        base = re.sub(r"_(bucket|sum|count)$", "", match[1]) if match[1] not in kinds else match[1]
        assert base == families[-1], line
        name = match[1] + (match[2] or "")
        assert name not in series, line
        series[name] = float(match[3])
    assert len(set(families)) == len(families)
    return series, kinds


def check_histograms(series, kinds):
    checked = 0
    for name, kind in kinds.items():
        if kind != "histogram":
            continue
        buckets = [(k, v) for k, v in series.items() if k.startswith(name + "_bucket{")]
        bounds = [float(re.search(r'le="([^"]+)"', k)[1]) for k, _ in buckets]
        values = [v for _, v in buckets]
        assert bounds == sorted(bounds) and bounds[-1] == float("inf"), bounds
        assert values == sorted(values) and values[-1] == series[name + "_count"], values
        assert name + "_sum" in series
        checked += 1
    assert checked == 2, kinds


def pages(program, folder):
    server = Server(program, folder, "--metrics", "127.0.0.1:0")
    url = server.address()
    assert get(url + "/healthz")[0::2] == (200, "ok\n")
    status, headers, page = get(url + "/metrics")
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", headers
    series, kinds = read_page(page)
    check_histograms(series, kinds)
    assert series["kvscout_up"] == 1 and series["kvscout_l1_bytes_limit"] == 16 << 20
    assert series["kvscout_bugs_mismatches_total"] == 0
    assert abs(series["kvscout_start_time_seconds"] - time.time()) < 3600
    status, headers, text = get(url + "/status")
    told = json.loads(text)
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert told["endpoint"] == "ipc://" + folder + "/s" and told["healthy"] is True
    assert told["status"]["l1.bytes_limit"] == 16 << 20
    assert 'epoch="%s"' % told["epoch"] in page and server.logged("epoch " + told["epoch"])
    assert told["epoch"] == told["status"]["epoch"] and re.fullmatch("[0-9a-f]{16}", told["epoch"])
    said = subprocess.run([server.program, "--status", told["endpoint"]], check=True, capture_output=True, text=True, timeout=20).stdout
    assert "epoch %s\n" % told["epoch"] in said
    assert get(url + "/metrics", "HEAD")[0::2] == (200, "")
    assert get(url + "/nothing")[0] == 404
    assert get(url + "/metrics", "PUT")[0] == 405
    assert server.end() == 0


def stops(program, folder):
    server = Server(program, folder, "--metrics", "127.0.0.1:0")
    host, port = server.address()[7:].split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(10)]
    idle[0].sendall(b"GET /metrics HTTP/1.1\r\n")
    half = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    half.request("GET", "/metrics")
    assert server.end() == 0
    for sock in idle:
        sock.close()
    half.close()


def refuses(program, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for value, says in (("127.0.0.1", "must be HOST:PORT"), ("[::1]", "there is no port"), ("x:70000", "0..65535"),
                            ("localhost:0", "names are not looked up"),
                            ("127.0.0.1:%d" % taken.getsockname()[1], "another program listens there")):
            done = subprocess.run([program, "--listen", "ipc://" + folder + "/s", "--metrics", value],
                                  capture_output=True, timeout=PATIENCE_S, check=False)
            status = 1 if "another program" in says else 2  # the port may be free later
            assert done.returncode == status and says in done.stderr.decode(), (value, done)
            assert done.stdout == b"", done


def names(program, folder):
    """Each metric that dashboard, alerts, pages and help texts name exists: in the list of docs/metrics.md, which comes from the code, or here."""
    server = Server(program, folder, "--metrics", "127.0.0.1:0", "--l2", "fs://" + folder + "/l2")
    page = get(server.address() + "/metrics")[2]
    _, kinds = read_page(page)
    known = set(kinds) | {name + end for name, kind in kinds.items() if kind == "histogram" for end in ("_bucket", "_sum", "_count")}
    known |= set(re.findall(r"^\* `(kvscout_\w+)` \(", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    texts = {"/metrics": "\n".join(re.findall(r"^# HELP \w+ (.*)$", page, re.M))}
    for path in [*ROOT.glob("packaging/monitoring/*"), ROOT / "docs" / "metrics.md", ROOT / "docs" / "operations.md"]:
        texts[path.name] = path.read_text()
    assert set(texts) >= {"alerts.yml", "dashboard.json"}, set(texts)
    for name, text in texts.items():
        # Not kvscout_process_*, which stands for several, nor vllm:kvscout_loads_total, which vLLM's /metrics has.
        wrong = set(re.findall(r"(?<![\w:])kvscout_\w+[a-z](?![\w*])", text)) - known
        assert not wrong, (name, wrong)
    assert server.end() == 0


def is_off(program, folder):
    server = Server(program, folder)
    assert server.ready.startswith("kvscoutd: ready on ") and "metrics" not in server.text()
    assert server.end() == 0


def main():
    cases = [pages, stops, refuses, names, is_off]
    failed = 0
    for number, case in enumerate(cases, 1):
        with tempfile.TemporaryDirectory(prefix="kvscout-test-") as folder:
            try:
                case(sys.argv[1], folder)
                print("ok %d - %s" % (number, case.__name__))
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                print("not ok %d - %s\n# %r" % (number, case.__name__, error))
            finally:
                Server.end_all()
    print("1..%d" % len(cases))
    return 1 if failed else 0


sys.exit(main())
