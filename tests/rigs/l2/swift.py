#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real S3: OpenStack Swift with its s3api, four processes on loopback, from wheels in a virtual environment.

usage: swift.py VENV FOLDER     writes "ready PORT", and runs until its standard input ends
                                or "skip REASON", where the wheels are neither there nor to be had

The access key is test:tester, its secret testing. FOLDER must not be there yet; the caller removes it.
"""

import ctypes
import fcntl
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
import urllib.request

SWIFT = "swift==2.38.3"
KINDS = ("account", "container", "object")

PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
client_timeout = 60
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck listing_formats s3api tempauth proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
allow_multipart_uploads = false
check_bucket_owner = false
location = us-east-1
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:listing_formats]
use = egg:swift#listing_formats
"""

STORE = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def install(venv):
    """None, or why it cannot be. Programs that start at the same time do it once."""
    lock = open(venv + ".lock", "wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.path.exists(venv + "/bin/swift-proxy-server"):
        return None
    try:
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return f"{sys.executable} makes no environment for {SWIFT} (Debian and Ubuntu: the package python3-venv)"
    try:
        subprocess.run([venv + "/bin/pip", "install", "-q", "--only-binary", ":all:", SWIFT, "setuptools<81"], check=True,
                       capture_output=True, timeout=240)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{SWIFT} cannot be installed from PyPI ({type(error).__name__})"
    return None


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def configure(venv, folder, ports):
    user = pwd.getpwuid(os.getuid()).pw_name
    os.makedirs(folder + "/devices/d1")
    write(folder + "/swift.conf", "[swift-hash]\nswift_hash_path_suffix = kvscout\nswift_hash_path_prefix = kvscout\n")
    for kind, port in zip(KINDS, ports[1:]):
        write(f"{folder}/{kind}.conf", STORE.format(kind=kind, port=port, user=user, folder=folder))
        ring = [venv + "/bin/swift-ring-builder", f"{folder}/{kind}.builder"]
        subprocess.run(ring + ["create", "4", "1", "1"], check=True, capture_output=True)
        subprocess.run(ring + ["add", f"r1z1-127.0.0.1:{port}/d1", "1"], check=True, capture_output=True)
        subprocess.run(ring + ["rebalance"], check=False, capture_output=True)
    write(folder + "/proxy.conf", PROXY.format(port=ports[0], user=user, folder=folder))


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def is_open(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def main():
    venv, folder = sys.argv[1:]
    why_not = install(venv)
    if why_not:
        print("skip " + why_not, flush=True)
        return
    ports = free_ports(4)
    configure(venv, folder, ports)
    log = open(folder + "/log", "wb")
    running = [
        subprocess.Popen([f"{venv}/bin/swift-{kind}-server", f"{folder}/{kind}.conf", "-v"], stdout=log, stderr=log,
                         stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
        for kind in ("proxy",) + KINDS
    ]
    end = time.monotonic() + 120
    while not (answers(ports[0]) and all(is_open(port) for port in ports[1:])):
        if time.monotonic() > end or any(process.poll() is not None for process in running):
            sys.exit(f"swift does not start: see {folder}/log")
        time.sleep(0.1)
    print(f"ready {ports[0]}", flush=True)
    sys.stdin.read()
    for process in running:
        process.kill()
        process.wait()


main()
