# SPDX-License-Identifier: Apache-2.0
"""Worker: threads, signals, garbage, exit and fork, with jobs that run; servers that die; other processes; large chunks."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref

import kvscout
from kvscout import _logs
from pages import BLOCK_TOKENS, CHUNK_TOKENS, Pages, Tensor, done_by_a_server, hashes_of, hit_of_a_server, wait_done
from rig import LIMIT_S, ServerProcess, forks, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))


def run(code, *args, stderr=subprocess.PIPE):
    """A program that may use pages.py."""
    head = f"import logging, os, sys, threading, time\nlogging.getLogger('kvscout').setLevel(logging.ERROR)\nsys.path.insert(0, {HERE!r})\nimport kvscout\nfrom pages import *\n"
    return subprocess.run([sys.executable, "-c", head + code, *args], stdout=subprocess.PIPE, stderr=stderr, text=True,
                          timeout=LIMIT_S)


class Case(unittest.TestCase):
    def setUp(self):
        self.server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
        self.addCleanup(self.server.stop)

    def registered(self, pages=None):
        worker, pages = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS), pages or Pages()
        self.addCleanup(worker.close)
        self.assertTrue(pages.register(worker))
        return worker, pages

    def stuck_job(self, worker):
        """A store that waits for its layers."""
        return worker.store(0, hashes_of("stuck", 1), range(4), layers=2, announced=True)


class Pinned(Case):
    def test_pages_live_until_close_and_no_longer(self):
        class Owner(Tensor):
            pass

        memory = Owner(bytearray(64 * 512), (64, 256))
        gone = weakref.ref(memory)
        worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        worker.register([memory], BLOCK_TOKENS)
        del memory
        gc.collect()
        self.assertIsNotNone(gone())
        worker.close()
        self.assertIsNone(gone())

    def test_a_buffer_cannot_be_resized_before_close(self):
        worker, pages = self.registered()
        with self.assertRaises(BufferError):
            pages.planes[0].extend(b"x")
        worker.close()
        pages.planes[0].extend(b"x")

    def test_a_refused_registration_keeps_nothing(self):
        worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        self.addCleanup(worker.close)
        memory = bytearray(640)
        with self.assertRaises(kvscout.ArgumentError):
            worker.register([memory], BLOCK_TOKENS, n_blocks=10, null_block=10)
        memory.extend(b"x")

    def test_events_live_until_poll_reports_their_job(self):
        class Event:
            cuda_event = 5

        worker, pages = self.registered()
        event = Event()
        gone = weakref.ref(event)
        with self.assertRaises(kvscout.ArgumentError):  # the host backend knows none, so nothing is kept
            worker.store(0, hashes_of("e", 1), range(4), event=event)
        del event
        self.assertIsNone(gone())


class Threads(Case):
    def test_a_second_thread_is_told_and_close_ends_the_wait(self):
        worker, pages = self.registered()
        job = self.stuck_job(worker)
        ended, started = [], threading.Event()

        def wait():
            started.set()
            try:
                worker.wait_layer(job, 1, timeout_ms=3600000)
            except kvscout.KVScoutError as error:
                ended.append(error.name)

        thread = threading.Thread(target=wait)
        thread.start()
        started.wait()
        texts = []
        for call in (worker.poll, worker.stats, lambda: worker.fence([1]), lambda: worker.cancel(job), worker.fileno):
            def refused():
                try:
                    call()
                except kvscout.StateError as error:
                    return str(error)
            texts.append(wait_for(refused, what="the other thread to be inside"))
        for text in texts:
            self.assertIn("another thread is inside Worker.wait_layer() of this object; one thread at a time may use it", text)
        worker.close()  # the wait itself would take an hour
        thread.join(LIMIT_S)
        self.assertFalse(thread.is_alive())
        self.assertEqual(ended, ["SCOUT_ERR_CLOSED"])
        for call in (worker.poll, lambda: worker.register([], 16), lambda: worker.store(0, [], []), worker.stats):
            with self.assertRaises(kvscout.KVScoutError):
                call()
        self.assertTrue(worker.closed)
        worker.close()

    def test_other_python_threads_run_while_one_waits(self):
        worker, pages = self.registered()
        job = self.stuck_job(worker)
        turns, stop = 0, threading.Event()
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(60)  # a thread that holds the GIL is not asked for it

        def count():
            nonlocal turns
            while not stop.is_set():
                turns += 1
                time.sleep(0)  # gives the GIL away; it comes back only if the other thread lets it go

        thread = threading.Thread(target=count)
        thread.start()
        try:
            def turns_of_a_wait():
                before = turns
                self.assertFalse(worker.wait_layer(job, 1, timeout_ms=200))
                return turns - before

            wait_for(lambda: turns_of_a_wait() > 1, what="a wait during which the other thread runs")
        finally:
            stop.set()
            thread.join()

    def test_a_signal_handler_ends_a_wait(self):
        worker, pages = self.registered()
        job = self.stuck_job(worker)

        def handler(number, frame):
            raise InterruptedError("by a signal")

        before = signal.signal(signal.SIGALRM, handler)
        try:
            with self.assertRaisesRegex(InterruptedError, "by a signal"):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                worker.wait_layer(job, 1, timeout_ms=3600000)
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(worker.progress(job)[2], 0)

    def test_an_argument_that_calls_back_is_told(self):
        worker, pages = self.registered()
        told = []

        class Id:
            def __index__(self):
                for call in (worker.poll, lambda: worker.fence([1, 2]), lambda: worker.store(0, [], list(range(5000)))):
                    try:
                        call()
                    except kvscout.StateError as error:
                        told.append(str(error))
                return 3

        self.assertTrue(wait_done(worker, worker.store(0, hashes_of("i", 1), [0, 1, 2, Id()])).ok)
        worker.fence([Id()])
        self.assertEqual(len(told), 6)

        class Closes:
            def __index__(self):
                worker.close()
                return 1

        with self.assertRaises(kvscout.ClosedError):
            worker.store(0, hashes_of("i", 1), [0, 1, 2, Closes()])

    def test_a_list_that_shrinks_while_it_is_read_is_told(self):
        worker, pages = self.registered()

        class Shrinks:
            def __index__(self):
                del ids[2:]
                return 1

        ids = [0, Shrinks(), 2, 3]
        with self.assertRaises(IndexError):
            worker.store(0, hashes_of("i", 1), ids)
        self.assertTrue(wait_done(worker, worker.store(0, hashes_of("i", 1), [0, 1, 2, 3])).ok)


class Garbage(Case):
    def test_an_engine_that_holds_pages_and_worker_in_a_circle(self):
        class Engine:
            pass

        engine = Engine()
        engine.memory = Tensor(bytearray(64 * 512), (64, 256))
        engine.memory.engine = engine
        engine.worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        engine.worker.register([engine.memory], BLOCK_TOKENS, timeout_ms=60000)
        engine.worker.store(0, hashes_of("g", 4), range(16))
        gone = weakref.ref(engine)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del engine
            gc.collect()
        self.assertIsNone(gone())
        self.assertEqual([str(w.message) for w in caught if "kvscout" in str(w.message)],
                         ["unclosed kvscout.Worker: call close(), or use it in a with statement"])

    def test_one_that_nobody_closed(self):
        worker, pages = self.registered()
        self.doCleanups()  # it holds the worker
        server = kvscout.Server(l1_bytes="64Mi")
        worker = kvscout.Worker(endpoint=server.endpoint, chunk_tokens=CHUNK_TOKENS)
        pages.register(worker)
        worker.store(0, hashes_of("g", 4), range(16))
        with self.assertWarns(ResourceWarning):
            del worker
        pages.planes[0].extend(b"x")  # let go
        server.stop()

    def test_nothing_is_left_behind_by_many(self):
        def once(n):
            for i in range(n):
                with kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS) as worker:
                    pages = Pages()
                    pages.register(worker)
                    wait_done(worker, worker.store(0, hashes_of(f"many {i}", 1), {0: range(4)}))
                    for bad in ([0, 1, 2, 64], [0, 1], "x"):
                        try:
                            worker.store(0, hashes_of("x", 1), bad)
                        except (kvscout.KVScoutError, TypeError):
                            pass
            gc.collect()
            return len(gc.get_objects()), len(os.listdir("/proc/self/fd"))

        once(5)
        before = once(5)
        after = once(30)
        self.assertLess(after[0] - before[0], 30)  # not one for each round
        self.assertLess(after[1] - before[1], 8)


OPEN = """
server = kvscout.Server(l1_bytes="256Mi")
worker = kvscout.Worker(endpoint=server.endpoint, chunk_tokens=64)
pages = Pages(n=64, sizes=(1 << 20,))
pages.register(worker)
"""


class Exit(unittest.TestCase):
    def ended(self, code):
        ended = run(code)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def test_with_copies_that_run(self):
        for _ in range(5):
            self.ended(OPEN + "for i in range(16): worker.store(0, hashes_of(i, 1), range(4 * i, 4 * i + 4))\n")

    def test_with_copies_that_run_and_pages_that_go_first(self):
        self.ended(OPEN + """
for i in range(16): worker.store(0, hashes_of(i, 1), range(4 * i, 4 * i + 4))
sys.keep = worker
del worker, pages
""")

    def test_with_a_daemon_thread_in_a_wait(self):
        ended = run(OPEN + """
job = worker.store(0, hashes_of("stuck", 1), range(4), layers=[1], announced=True)
inside = threading.Event()
def wait():
    inside.set()
    try:
        worker.wait_layer(job, 1, timeout_ms=3600000)
    except kvscout.ServerError:
        pass  # the server goes before this worker, which stays
threading.Thread(target=wait, daemon=True).start()
inside.wait()
time.sleep(0)
""")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_with_a_daemon_thread_in_register(self):
        self.ended("""
worker = kvscout.Worker(endpoint="ipc:///tmp/kvscout-nobody-listens-here", chunk_tokens=64)
inside = threading.Event()
def wait():
    inside.set()
    Pages().register(worker, timeout_ms=3600000)
threading.Thread(target=wait, daemon=True).start()
inside.wait()
""")

    def test_by_an_exception_and_by_os_exit(self):
        ended = run(OPEN + "worker.store(0, hashes_of(1, 1), range(4))\nraise SystemExit(5)")
        self.assertEqual((ended.returncode, ended.stderr), (5, ""))
        ended = run(OPEN + "worker.store(0, hashes_of(1, 1), range(4))\nos._exit(6)")
        self.assertEqual((ended.returncode, ended.stderr), (6, ""))


@forks
class Fork(unittest.TestCase):
    def test_a_child_is_told_and_leaves_and_the_parents_jobs_go_on(self):
        ended = run(OPEN + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on fork() warns where there are threads
for turn in range(4):
    jobs = [worker.store(0, hashes_of((turn, i), 1), range(4 * i, 4 * i + 4)) for i in range(16)]
    pid = os.fork()
    if pid == 0:
        for call in (worker.poll, worker.stats, lambda: worker.store(0, [], []), lambda: worker.fence([1]), worker.fileno):
            try:
                call()
            except kvscout.ClosedError as error:
                assert error.name == "SCOUT_ERR_FORKED", error
            else:
                os._exit(3)
        if turn == 1:
            worker.close()
        if turn == 2:
            del worker, pages, server
        if turn == 3:
            import gc
            globals().clear()
            import gc
            gc.collect()
            raise SystemExit(7)
        sys.exit(7)
    assert os.waitpid(pid, 0)[1] == 7 << 8, turn
    assert all(done.ok for done in wait_done(worker, *jobs))
print("went on")
""")
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "went on\n", ""))


READER = """
endpoint, prompt, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = kvscout.Client(endpoint=endpoint, chunk_tokens=64, lookup_timeout_ms=60000)
client.wait_ready(60000)
worker = kvscout.Worker(endpoint=endpoint, chunk_tokens=64)
pages = Pages()
pages.register(worker)
hit = client.wait_lookup("r", hashes_of(prompt, n), n * 64 + 1)
client.admit("r")
ids = list(range(7, 7 + 4 * hit.chunks))
done = wait_done(worker, worker.retrieve(hit.ticket, 0, hit.tokens, ids))
print(hit.chunks, done.ok, pages.holds(prompt, ids))
client.finish("r"); client.close(); worker.close()
"""


class Processes(unittest.TestCase):
    def setUp(self):
        self.server = ServerProcess()
        self.addCleanup(self.server.stop)

    def test_another_process_loads_what_this_one_stored(self):
        with kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS) as worker:
            pages = Pages()
            pages.register(worker)
            pages.fill("shared", range(12))
            self.assertEqual(wait_done(worker, worker.store(0, hashes_of("shared", 3), range(12))).chunks, 3)
            ended = run(READER, self.server.endpoint, "shared", "3", stderr=subprocess.STDOUT)
            self.assertEqual((ended.returncode, ended.stdout), (0, "3 True True\n"))

    def test_a_server_that_is_killed_costs_errors_and_comes_back(self):
        worker = kvscout.Worker(endpoint=self.server.endpoint, chunk_tokens=CHUNK_TOKENS)
        self.addCleanup(worker.close)
        pages = Pages()
        pages.register(worker)
        with self.assertLogs("kvscout"):
            stuck = worker.store(0, hashes_of("stuck", 1), range(4), layers=2, announced=True)
            self.server.kill()
            self.assertIn(wait_done(worker, stuck).error.name, ("SCOUT_ERR_UNREACHABLE", "SCOUT_ERR_EPOCH"))
            wait_for(lambda: not worker.stats()["server_up"])
            done = wait_done(worker, worker.store(0, hashes_of("gone", 1), range(4)))
            self.assertEqual(done.error.name, "SCOUT_ERR_UNREACHABLE")
            self.assertTrue(done.error.retriable)
            self.server.start()
            wait_for(lambda: worker.stats()["registered"], what="the worker to register anew")
            _logs.flush()
        pages.fill("back", range(4))
        self.assertEqual(wait_done(worker, worker.store(0, hashes_of("back", 1), range(4))).chunks, 1)

    def test_a_killed_process_leaves_the_server_to_others(self):
        ended = run("""
import signal
worker = kvscout.Worker(endpoint=sys.argv[1], chunk_tokens=64)
pages = Pages()
pages.register(worker)
pages.fill("killed", range(4))
wait_done(worker, worker.store(0, hashes_of("killed", 1), range(4)))
worker.store(0, hashes_of("half", 1), range(4), layers=2, announced=True)
os.kill(os.getpid(), signal.SIGKILL)
""", self.server.endpoint)
        self.assertEqual((ended.returncode, ended.stderr), (-signal.SIGKILL, ""))
        ended = run(READER, self.server.endpoint, "killed", "1", stderr=subprocess.STDOUT)
        self.assertEqual((ended.returncode, ended.stdout), (0, "1 True True\n"))


class Large(unittest.TestCase):
    def test_chunks_of_10_to_80_MiB(self):
        for mib in (10, 80):
            with self.subTest(mib=mib), kvscout.Server(l1_bytes="512Mi") as server, \
                    kvscout.Worker(endpoint=server.endpoint, chunk_tokens=CHUNK_TOKENS) as worker, \
                    kvscout.Client(endpoint=server.endpoint, chunk_tokens=CHUNK_TOKENS, lookup_timeout_ms=60000) as client:
                client.wait_ready(60000)
                pages = Pages(n=16, sizes=((mib << 20) // 8,) * 2)  # 4 blocks of 2 planes
                pages.register(worker)
                pages.fill("large", range(8))
                done = done_by_a_server(worker, lambda: wait_done(worker, worker.store(0, hashes_of("large", 2), range(8))))
                self.assertEqual((done.chunks + done.present, done.bytes), (2, done.chunks * mib << 20))
                pages.wipe()

                def load():
                    client.finish("large")
                    hit = hit_of_a_server(client, "large", hashes_of("large", 2), 1000)
                    return wait_done(worker, worker.retrieve(hit.ticket, 0, hit.tokens, range(8, 16)))

                done = done_by_a_server(worker, load)
                self.assertTrue(done.ok, done)
                self.assertTrue(pages.holds("large", range(8, 16)))


if __name__ == "__main__":
    unittest.main()
