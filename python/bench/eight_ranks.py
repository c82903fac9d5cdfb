# SPDX-License-Identifier: Apache-2.0
"""eight_ranks.py BUILD [POOL]: eight workers, each a process on the stand-in for the driver, and one server with a pool of POOL (4Gi).

Once as eight KV ranks, once as eight readers of one (MLA). How long until each has mapped and registered the pool; what becomes of the others
when one is killed in a load and in a store, and of all when the server is killed. Prints a table of docs/sizing.md. The stand-in registers
memory by noting it; a driver pins it besides.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from rig import ServerProcess, wait_for  # noqa: E402 the tests' own

RANKS, TOKENS, CHUNKS, BLOCKS, BYTES, LAYERS = 8, 64, 8, 64, 128 << 10, 4


def hashes(prompt):
    return [bytes([prompt, i]) * 16 for i in range(CHUNKS)]


def segments():
    """{inode: bytes} of what this process has mapped of a pool."""
    lines = [line.split() for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "memfd:kvscout" in line]
    return {line[4]: int(line[0].split("-")[1], 16) - int(line[0].split("-")[0], 16) for line in lines}


def rank(endpoint, place):
    """Commands as JSON on stdin, each with one answer."""
    os.environ["KVSCOUT_STANDIN_CUDA_ALL"] = "1"
    driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    driver.standin_pending.restype = ctypes.c_uint64
    import kvscout

    worker = kvscout.Worker(endpoint=endpoint, chunk_tokens=TOKENS, **place)
    worker.register([bytearray(BLOCKS * BYTES) for _ in range(LAYERS)], block_tokens=16, n_blocks=BLOCKS, timeout_ms=120000)
    libc, old, pages = ctypes.CDLL(None), {}, range(4, 4 + 4 * CHUNKS)
    orders = {
        "mapped": lambda: sum(size for inode, size in segments().items() if inode not in old),
        "forget": lambda: old.update(segments()),
        # While abs(1) is true nothing is copied.
        "gate": lambda shut: driver.standin_gate(libc.abs if shut else None, None, ctypes.c_void_p(1)),
        "store": lambda prompt: worker.store(0, hashes(prompt), pages),
        "load": lambda ticket: worker.retrieve(ticket, 0, CHUNKS * TOKENS, pages),
        "copying": driver.standin_pending,
        "done": lambda: [[job.status, job.chunks] for job in wait_for(worker.poll)][0],
        "registered": lambda: worker.stats()["registered"],
    }
    print("0", flush=True)
    for line in sys.stdin:
        name, *words = json.loads(line)
        print(json.dumps(orders[name](*words)), flush=True)


class Run:
    def __init__(self, pool, mla):
        import kvscout

        self.place = (lambda at: {"readers": RANKS, "reader": at}) if mla else (lambda at: {"kv_ranks": RANKS, "kv_rank": at})
        self.share = (int(pool.removesuffix("Gi")) << 30) // (1 if mla else RANKS)
        self.figures, self.began = {}, time.monotonic()
        self.server = ServerProcess(pool, prealloc="on", dead_writer_ms=500)
        self.ranks = [self.start(at) for at in range(RANKS)]
        for each in self.ranks:
            self.answer(each)
        self.lap("processes start, workers register")
        self.wait_mapped()
        self.lap("the pool is taken, mapped and registered by all")
        self.client = kvscout.Client(endpoint=self.server.endpoint, chunk_tokens=TOKENS, lookup_timeout_ms=30000,
                                     **({"readers": RANKS} if mla else {"kv_ranks": RANKS}))

    def lap(self, name):
        self.figures[name] = time.monotonic() - self.began
        self.began = time.monotonic()

    def start(self, at):
        return subprocess.Popen([sys.executable, __file__, "--rank", self.server.endpoint, json.dumps(self.place(at))], text=True, bufsize=1,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @staticmethod
    def answer(process):
        return json.loads(process.stdout.readline())

    def ask(self, *words, of=None):
        of = self.ranks if of is None else of
        for each in of:
            each.stdin.write(json.dumps(words) + "\n")
        return [self.answer(each) for each in of]

    def wait_mapped(self):
        wait_for(lambda: min(self.ask("mapped")) > self.share * 0.97, "the pool to be mapped")

    def look(self, name, prompt):
        hit = self.client.wait_lookup(name, hashes(prompt), CHUNKS * TOKENS + 1)
        self.client.admit(name)
        return hit

    def store(self, prompt):
        self.ask("store", prompt)
        assert all(status == 0 for status, _ in self.ask("done"))

    def kill_one(self, *job):
        """The first is killed while it copies; the others' jobs end well. The next process takes its place."""
        victim, others = self.ranks[:1], self.ranks[1:]
        self.ask("gate", 1, of=victim)
        self.ask(*job)
        wait_for(lambda: self.ask("copying", of=victim)[0], "the victim to copy")
        victim[0].kill()
        done = self.ask("done", of=others)
        assert all(status == 0 for status, _ in done) and (job[0] == "store" or all(chunks == CHUNKS for _, chunks in done)), done
        self.lap(f"one is killed in a {job[0]}: the others' end well")
        self.ranks[0] = self.start(0)
        self.answer(self.ranks[0])
        self.lap(f"its next process registers, after a {job[0]}")

    def kill_server(self):
        self.ask("forget")
        self.ask("gate", 1)
        self.ask("load", self.look("under way", 1).ticket)
        wait_for(lambda: min(self.ask("copying")), "all to copy")
        self.began = time.monotonic()
        self.server.kill()
        self.server.start()
        self.lap("the server is killed under eight loads: the next one is ready")
        self.ask("gate", 0)
        assert all(done == [0, CHUNKS] for done in self.ask("done"))
        wait_for(lambda: all(self.ask("registered")), "all to be registered")
        self.lap("the loads end, with all their bytes; all are registered with the next server")
        self.wait_mapped()
        self.lap("its pool is taken, mapped and registered by all")

    def play(self):
        self.store(1)
        self.lap("all store 8 chunks of 16 MiB (MLA: 2 MiB)")
        self.kill_one("load", self.look("load", 1).ticket)
        self.kill_one("store", 2)
        assert self.look("half", 2).tokens == 0  # the victim's part of the first chunk is missing
        self.kill_server()
        self.store(3)
        wait_for(lambda: self.look("hit", 3).tokens or self.client.finish("hit"), "a hit")
        self.lap("all store, and it hits")
        self.client.close()
        for each in self.ranks:
            each.kill()
        self.server.stop()
        return self.figures


def main():
    if sys.argv[1] == "--rank":
        rank(sys.argv[2], json.loads(sys.argv[3]))
        return
    build, pool = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "4Gi"
    os.environ |= {"LD_LIBRARY_PATH": f"{build}/tests/rigs/cuda_driver", "PYTHONPATH": f"{build}/python",
                   "KVSCOUTD": f"{build}/libserver/daemon/kvscoutd"}
    sys.path.insert(0, f"{build}/python")
    ranks, readers = (Run(pool, mla).play() for mla in (False, True))
    print(f"| seconds, a pool of {pool} | 8 KV ranks | 8 readers (MLA) |\n|---|---|---|")
    for name, seconds in ranks.items():
        print(f"| {name} | {seconds:.2f} | {readers[name]:.2f} |")


if __name__ == "__main__":
    main()
