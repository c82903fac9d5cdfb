#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""test_fault_pods.py KVSCOUTD KVSCOUT ACTOR: server and engine as containers of pods. Prints TAP.

Each is started by unshare(1) with namespaces of its own and as another user; they share one folder, which each sees at a path of its own,
and a group. An engine is an actor: a scheduler and workers under commands, with the real libraries. Nothing here is mocked, so it needs
root, who alone may make all of these.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PATIENCE_S = 60 * int(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))
ALL = ("ipc", "net", "uts", "pid", "mount", "user")
CONTAINER = ("ipc", "net", "uts", "pid", "mount")
SERVER_UID, ENGINE_UID, GROUP = 20001, 20002, 20003
NOBODY = 65534
MIB = 1 << 20
CHUNK_BLOCKS = 4
READ_ONLY = "mount -o remount,bind,ro / && "
CGROUPS = "/sys/fs/cgroup/memory" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"


class Lacks(Exception):
    """What this machine does not have for a case."""


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"this did not become true: {what}"
        time.sleep(0.01)


class Pod:
    """One process in namespaces of its own. What it sees at @view is the shared folder, which is elsewhere for everybody else."""

    def __init__(self, base, name, argv, uid, gid=GROUP, differ=ALL, groups=(GROUP,), inner_uid=None, cgroup=None):
        self.view = f"{base}/{name}/run" if "mount" in differ else f"{base}/shared"
        os.makedirs(self.view, exist_ok=True)
        # With a mount namespace nobody finds the folder at the path that the others have.
        enter = f"mount --bind {base}/shared {self.view} && mount -t tmpfs none {base}/shared && " if "mount" in differ else ""
        enter += READ_ONLY if "mount" in differ else ""
        enter += f"mount --bind {cgroup} {CGROUPS} && " if cgroup else ""
        join = f"echo $$ >{cgroup}/cgroup.procs && " if cgroup else ""
        flags = [f"--{kind}" for kind in differ if kind != "user"]
        flags += ["--mount-proc"] if {"pid", "mount"} <= set(differ) else []
        flags += ["--cgroup"] if cgroup else []
        become = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--groups=" + ",".join(map(str, groups)) if groups else "--clear-groups"]
        powerless = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
        ahead = ["unshare", "--fork", "--kill-child", *flags]
        inside = ["sh", "-c", enter + 'exec "$@"', "sh"]
        if "user" in differ:  # the user makes them all, who is alone in there with that group
            command = [*become, *ahead, "--user", f"--map-user={inner_uid or uid}", f"--map-group={gid}", "--keep-caps", *inside,
                       "setpriv", *powerless]
        else:
            command = [*ahead, *inside, *become, *powerless]
        self.log = open(f"{base}/{name}.log", "ab+")
        self.process = subprocess.Popen(["sh", "-c", join + 'exec "$@"', "sh", *command, *[a.replace("@", self.view) for a in argv]],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1)

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def pid(self):
        """Its pid as root sees it: unshare has one child."""
        pid = self.process.pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def kill(self, number):
        os.kill(self.pid(), number)

    def end(self, number=signal.SIGTERM):
        """Its exit status, as a shell says it."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                self.kill(number)
        status = self.process.wait(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            with contextlib.suppress(OSError):
                stream.close()
        return status


class World:
    """A shared folder with one server and any number of engines."""

    programs = ()

    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="kvscout-pods-")
        os.chmod(self.base, 0o755)
        os.mkdir(self.base + "/shared")
        os.chmod(self.base + "/shared", 0o777)  # as the kubelet makes an emptyDir
        self.pods, self.cgroups = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in self.pods:
            pod.end(signal.SIGKILL)
        for cgroup in self.cgroups:
            wait_for("the cgroup is empty", lambda cgroup=cgroup: not pathlib.Path(cgroup, "cgroup.procs").read_text())
            os.rmdir(cgroup)
        shutil.rmtree(self.base)

    def pod(self, name, argv, uid, **how):
        pod = Pod(self.base, name, argv, uid, **how)
        self.pods.append(pod)
        return pod

    def server(self, *keys, name="server", **how):
        how = {"uid": SERVER_UID, **how}
        server = self.pod(name, [self.programs[0], "--listen", "ipc://@/kvscout/s", "--socket_group", str(GROUP), "--l1_bytes", "16Mi",
                                 *keys], **how)
        ready = server.line()
        assert ready == f"kvscoutd: ready on ipc://{server.view}/kvscout/s", f"{ready!r} {server.text()}"
        return server

    def engine(self, name="engine", **how):
        how = {"uid": ENGINE_UID, **how}
        engine = Engine(self.pod(name, [self.programs[2], "ipc://@/kvscout/s", "1", "1", "200", "30000", "0"], **how))
        assert engine.pod.line() == "ok actor", engine.pod.text()
        return engine

    def tool(self, *argv, uid=SERVER_UID, name="tool", **how):
        """(status, what it said) of the command kvscout, by default as the server's own user."""
        tool = self.pod(name, [self.programs[1], *argv, "--endpoint", "ipc://@/kvscout/s"], uid, **how)
        said = tool.process.stdout.read()
        return tool.process.wait(PATIENCE_S), said + tool.text()

    def status(self, key):
        code, said = self.tool("status", "--json", uid=0, groups=(), differ=())
        assert code == 0, said
        found = re.search(rf'"{key}": *([0-9]+)', said)
        assert found, f"{key} is not in {said}"
        return int(found[1])

    def cgroup(self, name, limit):
        """Memory of a container, by cgroups of version 1 or 2."""
        if os.environ.get("KVSCOUT_TEST_SANITIZED") == "1":
            raise Lacks("a sanitizer takes memory of its own")
        path = f"{CGROUPS}/kvscout-pods-{os.getpid()}-{name}"
        try:
            os.mkdir(path)
        except OSError as error:
            raise Lacks(f"no memory cgroup can be made: {error}") from error
        self.cgroups.append(path)
        for file in ("memory.limit_in_bytes", "memory.max"):
            if os.path.exists(f"{path}/{file}"):
                pathlib.Path(path, file).write_text(str(limit))
                return path
        raise Lacks("cgroups here do not limit memory")


def used(cgroup):
    file = "memory.usage_in_bytes" if os.path.exists(f"{cgroup}/memory.usage_in_bytes") else "memory.current"
    return int(pathlib.Path(cgroup, file).read_text())


class Engine:
    """An actor and its commands."""

    def __init__(self, pod):
        self.pod = pod

    def ask(self, *words):
        self.pod.process.stdin.write(" ".join(map(str, words)) + "\n")
        return self.pod.line()

    def do(self, *words):
        answer = self.ask(*words)
        assert answer.startswith("ok"), f"{' '.join(map(str, words))}: {answer}; its log: {self.pod.text()}"
        return answer.split()[1:]

    def join(self):
        self.do("client")
        self.do("worker", 0)

    def store(self, prompt, chunks):
        """The chunks that were stored."""
        self.do("store", 0, prompt, prompt, chunks, 1, 0)
        done = self.do("done", 0)
        assert done[1] == "0", f"the store ended with {done[1]}"
        return int(done[3])

    def lookup(self, name, prompt, chunks):
        """(milliseconds, tokens that hit, ticket)"""
        tokens, _, ticket, _, _, us = self.do("lookup", name, prompt, chunks, chunks * CHUNK_BLOCKS * 16 + 1)
        return int(us) / 1000, int(tokens), int(ticket)

    def begin_load(self, name, prompt, chunks):
        """The job; the pages are from 100 on."""
        _, tokens, ticket = self.lookup(name, prompt, chunks)
        assert tokens == chunks * CHUNK_BLOCKS * 16, f"{tokens} tokens hit"
        self.do("admit", name, tokens, tokens)
        return self.do("retrieve", 0, ticket, 0, chunks * CHUNK_BLOCKS, 100)[0]

    def load(self, name, prompt, chunks):
        """R, U or W for each page: right, untouched, wrong."""
        self.do("wipe", 0)
        self.begin_load(name, prompt, chunks)
        self.do("done", 0)
        self.do("finish", name)
        return self.do("pages", 0, 100, chunks * CHUNK_BLOCKS, prompt, 0)[0]


def works(world, engine, chunks=8):
    """A miss, a store, a hit, a load with every byte compared, over the lease connection and shared memory."""
    engine.join()
    assert engine.lookup("first", 1, chunks)[1] == 0
    engine.do("finish", "first")
    assert engine.store(1, chunks) == chunks
    assert engine.load("again", 1, chunks) == "R" * chunks * CHUNK_BLOCKS
    assert "without a lease" not in engine.pod.text(), engine.pod.text()
    assert world.status("channels") == 2, "client and worker have their frames in shared memory"


def each_namespace_may_differ(differ):
    def case():
        with World() as world:
            world.server(differ=differ)
            works(world, world.engine(differ=differ))
            assert world.tool("ping", differ=differ)[0] == 0, "as a probe of the server's own container"
    return case


def another_user_is_refused():
    """Who is not in the group has no socket; nothing waits for ever."""
    with World() as world:
        world.server()
        code, said = world.tool("ping", uid=ENGINE_UID, gid=ENGINE_UID, groups=())
        assert code == 3 and "Permission denied" in said, f"{code} {said}"


def users_without_a_number_are_engines():
    """The kernel shows a user whom the server's user namespace does not have as uid 65534, which may be the server's own."""
    with World() as world:
        world.server(inner_uid=NOBODY)
        works(world, world.engine())
        code, said = world.tool("peers", uid=ENGINE_UID)
        assert code == 1 and "this uid is an engine's" in said, f"{code} {said}"


def a_killed_engine_holds_nothing():
    """In a load its hold ends, in a store what it wrote is set aside; the next engine is served."""
    with World() as world:
        world.server("--dead_writer_ms", "200")
        engine, other = world.engine(), world.engine("other")
        works(world, engine)
        other.join()
        for what in ("load", "store"):
            engine = engine or world.engine(what)
            if what == "store":
                engine.join()
            engine.do("gate", "shut")
            job = engine.begin_load("killed", 1, 8) if what == "load" else engine.do("store", 0, 2, 2, 8, 1, 0)[0]
            engine.do("enqueued", 0, job)
            assert world.status("holds") == 1
            engine.pod.kill(signal.SIGKILL)
            wait_for("its hold ends", lambda: world.status("holds") == 0)
            assert other.load(f"after {what}".replace(" ", "-"), 1, 8) == "R" * 32
            engine = None
        assert other.lookup("half", 2, 8)[1] == 0, "what a killed engine was writing is not served"
        wait_for("both clients and both workers are seen to end", lambda: world.status("peers.died") == 4)


def a_living_engine_keeps_its_holds():
    """Its connections end, as where a kernel or a network ends them; its process, which the server cannot see by pid, lives."""
    with World() as world:
        world.server()
        engine = world.engine()
        works(world, engine)
        engine.do("gate", "shut")
        engine.do("enqueued", 0, engine.begin_load("cut", 1, 8))
        engine.do("cut")
        wait_for("it is back", lambda: engine.do("stats")[0] == "1")
        assert world.status("holds") == 1 and world.status("peers.died") == 0
        engine.do("gate", "open")
        engine.do("done", 0)
        assert engine.do("pages", 0, 100, 32, 1, 0)[0] == "R" * 32


def the_pool_is_the_servers_memory():
    """Workers map the pool and copy to it, and the server's container pays."""
    with World() as world:
        of_server, of_engine = world.cgroup("server", 96 * MIB), world.cgroup("engine", 24 * MIB)
        world.server("--l1_bytes", "32Mi", differ=CONTAINER, cgroup=of_server)
        engine = world.engine(differ=CONTAINER, cgroup=of_engine)
        engine.join()
        before, began = used(of_server), used(of_engine)
        for prompt in range(1, 81):
            assert engine.store(prompt, 100) == 100
        grown, own = used(of_server) - before, used(of_engine) - began
        assert grown > 28 * MIB, f"the server's group grew by {grown}"
        assert own < 4 * MIB, f"the engine's group grew by {own}"
        assert engine.load("all", 80, 100) == "R" * 400


def auto_takes_half_of_the_containers_limit():
    with World() as world:
        serve = f"mkdir -m 700 @/own && XDG_RUNTIME_DIR=@/own exec {World.programs[0]}"
        server = world.pod("server", ["sh", "-c", serve], SERVER_UID, differ=CONTAINER, cgroup=world.cgroup("server", 256 * MIB))
        assert server.line().startswith("kvscoutd: ready"), server.text()
        wait_for("it says its pool", lambda: "a pool of" in server.text())
        pool = int(re.search(r"a pool of ([0-9]+) MiB", server.text())[1])
        assert 96 <= pool <= 128, server.text()


class Load:
    """An engine that looks up, loads what hits and stores the rest, until it is told to end."""

    def __init__(self, engine):
        self.engine, self.ends, self.error = engine, False, None
        self.n = self.hits = 0
        self.longest_ms = 0.0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def step(self):
        name, prompt = f"r{self.n}", 1 + self.n % 7
        ms, tokens, ticket = self.engine.lookup(name, prompt, 8)
        self.longest_ms = max(self.longest_ms, ms)
        if tokens == 8 * 64:
            self.engine.do("admit", name, tokens, tokens)
            self.engine.do("wipe", 0)
            if self.engine.ask("retrieve", 0, ticket, 0, 32, 100).startswith("ok"):
                self.engine.do("done", 0)
                pages = self.engine.do("pages", 0, 100, 32, prompt, 0)[0]
                assert "W" not in pages, pages
                self.hits += pages == "R" * 32
        elif self.engine.ask("store", 0, prompt, prompt, 8, 1, 0).startswith("ok"):
            self.engine.do("done", 0)
        self.engine.do("finish", name)
        self.n += 1

    def run(self):
        try:
            while not self.ends:
                self.step()
        except Exception as error:  # noqa: BLE001 the case says it
            self.error = error

    def end(self):
        self.ends = True
        self.thread.join()
        if self.error:
            raise self.error


def a_rolling_restart_under_load():
    """SIGTERM to process 1 of the server's pod, and the next pod takes its place: no wrong byte, no lookup that waits, hits again."""
    with World() as world:
        server, engine = world.server(), world.engine()
        engine.join()
        load = Load(engine)
        try:
            for i in range(3):
                hits = load.hits
                wait_for("hits", lambda hits=hits: load.error or load.hits > hits + 20)
                assert server.end() == 0, server.text()
                server = world.server(name=f"server{i}")
            hits = load.hits
            wait_for("hits after the last restart", lambda: load.error or load.hits > hits + 20)
        finally:
            load.end()
        print(f"# three restarts: {load.n} lookups, {load.hits} loads, the longest lookup {load.longest_ms:.0f} ms")
        assert load.longest_ms < 1000 * PATIENCE_S / 60


def a_second_server_says_who_is_there():
    with World() as world:
        world.server()
        second = world.pod("second", [World.programs[0], "--listen", "ipc://@/kvscout/s", "--l1_bytes", "1Mi"], SERVER_UID)
        assert second.line() == "" and second.end() == 4
        assert "is held by a living server" in second.text(), second.text()


CASES = {"the same namespaces, another user": each_namespace_may_differ(())}
CASES |= {f"another {kind} namespace": each_namespace_may_differ((kind,)) for kind in ALL}
CASES["all namespaces differ"] = each_namespace_may_differ(ALL)
CASES |= {case.__name__.replace("_", " "): case for case in (
    another_user_is_refused, users_without_a_number_are_engines, a_killed_engine_holds_nothing, a_living_engine_keeps_its_holds,
    the_pool_is_the_servers_memory, auto_takes_half_of_the_containers_limit, a_rolling_restart_under_load,
    a_second_server_says_who_is_there)}


def missing():
    """What a machine lacks to be a host of pods; nothing if it lacks nothing."""
    if os.geteuid() != 0:
        return "only root may be two other users"
    if tuple(map(int, re.findall(r"[0-9]+", os.uname().release)[:2])) < (6, 5):
        return "before Linux 6.5 a server does not see the processes of other pid namespaces"
    try:
        with World() as world:
            probe = world.pod("probe", [World.programs[0], "--version"], SERVER_UID)
            return "" if probe.process.wait(PATIENCE_S) == 0 else f"no namespaces, or a tree of root's alone: {probe.text().strip()}"
    except FileNotFoundError as error:
        return f"no {error.filename} here"


def main():
    World.programs = sys.argv[1:4]
    lacks = missing()
    if lacks:
        print(f"1..0 # SKIP {lacks}")
        return 0
    failed = 0
    for i, (name, case) in enumerate(CASES.items(), 1):
        try:
            case()
            print(f"ok {i} - {name}", flush=True)
        except Lacks as lacks:
            print(f"ok {i} - {name} # SKIP {lacks}", flush=True)
        except Exception as error:  # noqa: BLE001 a case that fails ends alone
            failed += 1
            print(f"not ok {i} - {name}\n# " + "".join(traceback.format_exception(error)).replace("\n", "\n# "), flush=True)
    print(f"1..{len(CASES)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
