#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""test_tools_web.py KVSCOUT KVSCOUTD [MODULES]: what `kvscout web` answers, and what its page shows in Chromium, if there is one. TAP.
MODULES is a folder with the Python package, for load with tenants."""
import base64
import contextlib
import fcntl
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

KVSCOUT, KVSCOUTD = sys.argv[1:3]
PATIENCE_S = 120
HOSTILE = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(2)>"


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.05)
    return result


@contextlib.contextmanager
def program(*command, **options):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


class World:
    """A page, and a server that comes and goes."""

    def __init__(self, stack):
        self.stack = stack
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.endpoint = "ipc://" + self.folder + "/s"
        self.port = 0
        self.start_web()

    def start_web(self):
        self.errors = open(self.folder + "/errors", "w+")
        self.web = self.stack.enter_context(program(KVSCOUT, "web", "--endpoint", self.endpoint, "--port", str(self.port), "--interval",
                                                    "0.5", stderr=self.errors))
        self.url = self.web.stdout.readline().rstrip("\n")
        self.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.url)[1])

    def start_server(self):
        self.server = self.stack.enter_context(program(KVSCOUTD, "--listen", self.endpoint, "--l1-bytes", "16Mi", "--l2",
                                                       "fs://" + self.folder + "/l2?max_bytes=64Mi", stderr=subprocess.DEVNULL))
        assert "ready" in self.server.stdout.readline()

    def request(self, method, path, headers=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def data(self, after=0):
        status, _, text = self.request("GET", f"/data/{after}")
        assert status == 200, text
        return json.loads(text)

    def connect(self, text):
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        sock.sendall(text)
        return sock

    def answers_soon(self):
        begin = time.monotonic()
        assert self.request("GET", "/")[0] == 200
        assert time.monotonic() - begin < 5


def it_starts_before_the_server_and_says_why(w):
    data = until(lambda: (d := w.data())["why"] and d)
    assert data["server"] is None and data["since_ms"] and "no server" in data["why"], data
    w.start_server()
    data = until(lambda: (d := w.data())["server"] and not d["why"] and d["points"] and d)
    assert data["since_ms"] == 0 and data["server"]["endpoint"] == w.endpoint and data["points_most"] == 1800, data
    last = data["points"][-1][0]
    assert all(p[0] > last for p in until(lambda: w.data(last)["points"]))
    w.errors.seek(0)
    assert w.errors.read().count("\n") == 1  # told once


def the_page_is_alone_and_allows_nothing(w):
    status, headers, text = w.request("GET", "/")
    policy = headers["Content-Security-Policy"]
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and len(text) < 40000
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy, policy
    assert "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy, policy
    assert "innerHTML" not in text and re.findall(r"//[a-z0-9.]+", text) == ["//www.w3.org"], re.findall(r"//[a-z0-9.]+", text)
    for path in "/", "/data/0", "/nothing":
        headers = w.request("GET", path)[1]
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer", headers
        assert headers["Cache-Control"] == "no-store" and headers["Access-Control-Allow-Origin"] is None, headers
    status, headers, text = w.request("HEAD", "/")
    assert status == 200 and int(headers["Content-Length"]) > 1000 and text == ""


def other_hosts_methods_and_paths_are_refused(w):
    for host in "evil.example", f"evil.example:{w.port}", f"127.0.0.1:{w.port + 1}", "127.0.0.1", f"localhost.evil.example:{w.port}", "":
        for path in "/", "/data/0":
            status, _, text = w.request("GET", path, {"Host": host})
            assert status == 421 and "ssh -L" in text, (host, status, text)
    for host in f"localhost:{w.port}", f"[::1]:{w.port}", f"LOCALHOST:{w.port}":
        assert w.request("GET", "/data/0", {"Host": host})[0] == 200, host
    for method in "POST", "PUT", "DELETE", "OPTIONS", "TRACE":
        status, headers, _ = w.request(method, "/")
        assert status == 405 and headers["Allow"] == "GET, HEAD", (method, status)
    for path in "/data/", "/data/x", "/data/-1", "/data/1/", "/../etc/passwd", "/metrics":
        assert w.request("GET", path)[0] == 404, path
    with w.connect(b"GET / HTTP/1.0\r\n\r\n") as sock:
        assert b" 421 " in sock.recv(100)


def large_requests_are_refused(w):
    assert w.request("POST", "/", body=b"x" * 1000)[0] == 405
    for text in b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (1 << 20), b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20):
        with contextlib.suppress(ConnectionError), w.connect(text) as sock:
            assert not re.match(rb"HTTP/1.1 2", sock.recv(100))
    w.answers_soon()


def slow_clients_and_a_thousand_do_not_hold_it_up(w):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    descriptors = lambda: len(os.listdir(f"/proc/{w.web.pid}/fd"))
    before = descriptors()
    slow = [w.connect(b"GET /data/0 HTTP/1.1\r\nX-Slow: ") for _ in range(1000)]
    w.answers_soon()
    assert descriptors() < before + 40, (before, descriptors())
    for sock in slow:
        sock.close()
    w.answers_soon()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def a_server_that_stops_and_returns(w):
    until(lambda: not w.data()["why"])
    w.server.send_signal(signal.SIGSTOP)
    w.answers_soon()
    assert "no answer within" in until(lambda: w.data()["why"])
    w.answers_soon()
    w.server.send_signal(signal.SIGCONT)
    until(lambda: not w.data()["why"])
    w.server.kill()
    w.server.wait()
    data = until(lambda: (d := w.data())["why"] and d)
    assert data["server"] and data["now_ms"] - 60000 < data["since_ms"] <= data["now_ms"], data
    last = data["points"][-1][0]
    w.start_server()
    data = until(lambda: (d := w.data(last))["points"] and d)
    assert data["why"] == "" and data["points"][0][0] > last


def what_cannot_be_served_is_said(w):
    for options, status, text in (
            (["--port", str(w.port)], 1, f"127.0.0.1:{w.port}: another program listens there; choose another port, or 0"),
            (["--address", "0.0.0.0", "--port", "8000"], 2, "must be 127.0.0.1 or ::1, because the page asks nobody for a password; for a "
             "browser on another machine, run ssh -L 8000:127.0.0.1:8000 "),
            (["--port", "70000"], 2, "must be 0..65535"), (["--interval", "0"], 2, "0.5..60"),
            (["--port", "0", "--endpoint", "nonsense"], 2, "must be ipc:///PATH")):
        done = subprocess.run([KVSCOUT, "web", *options], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == status and text in done.stderr, done


def signals_end_it(w):
    for number in signal.SIGTERM, signal.SIGINT:
        with program(KVSCOUT, "web", "--endpoint", w.endpoint, "--port", "0", stderr=subprocess.PIPE) as web:
            assert web.stdout.readline().startswith("http://127.0.0.1:")
            web.send_signal(number)
            assert web.wait(PATIENCE_S) == 0 and web.stdout.read() == "" and web.stderr.read() == ""


# ---- in a browser ----

class Browser:
    """Chromium, over its pipe of the DevTools protocol: file descriptors 3 and 4, messages end with a zero."""

    def __init__(self, stack):
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        theirs, ours, self.number, self.buffer, self.events, self.session = [], [], 0, b"", [], {}
        for end in os.pipe(), reversed(os.pipe()):
            end = tuple(end)
            theirs.append(fcntl.fcntl(end[0], fcntl.F_DUPFD, 20))
            ours.append(end[1])
            os.close(end[0])
        self.process = stack.enter_context(program(
            shutil.which("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--user-data-dir=" + self.folder, "--remote-debugging-pipe", "about:blank", stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(theirs[0], 3), os.dup2(theirs[1], 4))))
        for fd in theirs:
            os.close(fd)
        self.to, self.of = ours
        page = next(t for t in self.do("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = {"sessionId": self.do("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]}
        for domain in "Page", "Runtime", "Log":
            self.do(domain + ".enable")

    def do(self, method, **params):
        self.number += 1
        os.write(self.to, json.dumps({"id": self.number, "method": method, "params": params, **self.session}).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                self.buffer += os.read(self.of, 1 << 16)
            text, self.buffer = self.buffer.split(b"\0", 1)
            message = json.loads(text)
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def value(self, expression):
        return self.do("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def shows(self, text):
        seen = lambda: (self.value("document.body.innerText") or "").replace("\u00a0", " ")
        try:
            until(lambda: text in seen())
        except AssertionError:
            raise AssertionError(f"not on the page: {text}\n{seen()}") from None

    def look(self, width, scheme):
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=self.value("document.body.offsetHeight"), deviceScaleFactor=1,
                mobile=False)
        self.value("drawAll()")

    def assert_quiet(self):
        """No exception, nothing that the policy refused, no dialog; a server that is away is no such thing."""
        bad = [e for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening") or (
            e["method"] == "Log.entryAdded" and "Failed to load resource" not in e["params"]["entry"]["text"])]
        assert not bad, bad


# The smallest contrast of a text with what lies behind it, as WCAG counts it, and that text.
CONTRAST = """(() => {
  const rgb = c => c.match(/[0-9.]+/g).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
  let worst = [21, ""];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.getClientRects().length || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e), ink = light(rgb(e.namespaceURI.endsWith("svg") ? style.fill : style.color));
    let behind = e;
    while (behind && /, 0\\)$/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const page = light(rgb(getComputedStyle(behind).backgroundColor));
    const contrast = (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
    if (contrast < worst[0]) worst = [contrast, e.textContent];
  }
  return worst;
})()"""


def load(w, end):
    """A client looks up what it stored until the event @end, with a tenant whose name is HTML, in a namespace whose name is, too."""
    sys.path.insert(0, sys.argv[3])
    import kvscout
    client, worker = (make(endpoint=w.endpoint, chunk_tokens=16, namespace=IMAGE) for make in (kvscout.Client, kvscout.Worker))
    worker.register([bytearray(64 * 4096)], block_tokens=16, n_blocks=64, timeout_ms=30000)
    i = 0
    while not end.wait(0.005):
        i += 1
        hashes = kvscout.hash_blocks([i % 50] * 512, 16)
        tenant = {"tenant": [HOSTILE, "chat"][i % 2]}
        hit = client.wait_lookup(str(i), hashes, 512, **tenant)
        if not hit.tokens:
            worker.store(0, hashes, range(32), **tenant)
            until(worker.poll)
        client.finish(str(i))
    worker.close()
    client.close()


def the_page_shows_all_of_it_in_two_sizes_and_colours(w, browser):
    end = threading.Event()
    w.stack.callback(end.set)
    thread = threading.Thread(target=load, args=(w, end))
    thread.start()
    browser.do("Page.navigate", url=w.url)
    for text in "Nothing needs attention.", IMAGE, HOSTILE, "fs://" + w.folder, "works", "worker 0", "of 16.0 MiB":
        browser.shows(text)
    until(lambda: browser.value("CHARTS.every(c => c.svg.querySelector('path'))"))
    for width in 400, 1600:
        for scheme in "light", "dark":
            browser.look(width, scheme)
            assert browser.value("document.scrollingElement.scrollWidth") == width, width
            worst = browser.value(CONTRAST)
            assert worst[0] >= 4.5, (scheme, worst)
    end.set()
    thread.join()
    browser.assert_quiet()


def text_of_a_hostile_server_stays_text(w, browser):
    """The same answers, with HTML in each text of them and names that JavaScript knows; under the page's own policy."""
    data = w.data()
    server = data["server"]
    hostile = [HOSTILE, IMAGE, "__proto__", "\u202e\u2028</title>" + IMAGE, "A" * 255]
    server.update(endpoint=IMAGE, attention=hostile, namespaces=hostile, tenants=[[n, 9, *[[t, 2**64] for t in hostile]] for n in hostile])
    server["peers"] = [dict(server["peers"][0] if server["peers"] else {}, role=HOSTILE, namespace=n, pid=IMAGE, kv_rank=0, sessions=1, holds=1,
                            waiting=1, unread_bytes=2**64, silent_ms=2**60) for n in hostile]
    server["status"].update({"l2.adapters": 2**64, "l2.0.words " + IMAGE: 1, "l2.0.state": 2, "epoch": IMAGE, "l1.bytes_limit": 0,
                             "__proto__": 1, **{f"ns.{n}.bytes": 2**64 for n in hostile}})
    data.update(why=HOSTILE, since_ms=1)
    browser.do("Fetch.enable", patterns=[{"urlPattern": "*/data/*"}])
    body = base64.b64encode(json.dumps(data).encode()).decode()
    browser.do("Page.navigate", url=w.url)

    def fulfil():
        browser.value("0")  # reads what came
        for event in [e for e in browser.events if e["method"] == "Fetch.requestPaused"]:
            browser.events.remove(event)
            browser.do("Fetch.fulfillRequest", requestId=event["params"]["requestId"], responseCode=200, body=body)
        return HOSTILE in (browser.value("document.body.innerText") or "")
    until(fulfil)
    found = browser.value("[document.images.length, document.scripts.length]")
    assert found == [0, 1], found
    browser.look(400, "light")
    assert browser.value("document.scrollingElement.scrollWidth") == 400
    browser.assert_quiet()


def the_page_says_what_is_away_and_goes_on(w, browser):
    browser.do("Fetch.disable")
    browser.do("Page.navigate", url=w.url)
    browser.shows("Nothing needs attention.")
    w.server.kill()
    w.server.wait()
    browser.shows("The server has not answered since ")
    assert browser.value(CONTRAST)[0] >= 4.5
    w.start_server()
    browser.shows("Nothing needs attention.")
    w.web.kill()
    w.web.wait()
    browser.shows("kvscout web has not answered since ")
    w.start_web()
    browser.shows("Nothing needs attention.")
    browser.assert_quiet()


CASES = [it_starts_before_the_server_and_says_why, the_page_is_alone_and_allows_nothing, other_hosts_methods_and_paths_are_refused,
         large_requests_are_refused, slow_clients_and_a_thousand_do_not_hold_it_up, a_server_that_stops_and_returns,
         what_cannot_be_served_is_said, signals_end_it]
IN_BROWSER = [the_page_shows_all_of_it_in_two_sizes_and_colours, text_of_a_hostile_server_stays_text, the_page_says_what_is_away_and_goes_on]


def main():
    failed, browser = 0, None
    print(f"1..{len(CASES + IN_BROWSER)}")
    with contextlib.ExitStack() as stack:
        w = World(stack)
        why = "" if shutil.which("chromium") and len(sys.argv) > 3 else "no chromium (./dev check web installs it), or no Python extension"
        for number, case in enumerate(CASES + IN_BROWSER, 1):
            if case in IN_BROWSER and why:
                print(f"ok {number} - {case.__name__} # SKIP {why}")
                continue
            try:
                if case in IN_BROWSER:
                    browser = browser or Browser(stack)
                case(w, *[browser] * (case in IN_BROWSER))
                print(f"ok {number} - {case.__name__}", flush=True)
            except Exception as error:
                failed += 1
                print(f"not ok {number} - {case.__name__}\n# " + f"{type(error).__name__}: {error}".replace("\n", "\n# "), flush=True)
    return failed > 0


sys.exit(main())
