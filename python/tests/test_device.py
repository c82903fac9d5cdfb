# SPDX-License-Identifier: Apache-2.0
"""Worker on the CUDA backend, without a GPU: what is loaded as libcuda.so.1 is the stand-in of tests/rigs/cuda_driver, for which plain
memory is memory of device 0. The cases of test_worker.py once more, and what the device was asked to do.

It is found by LD_LIBRARY_PATH; a driver of CUDA's own is none for these cases."""

import ctypes
import os
import subprocess
import sys
import unittest

os.environ["KVSCOUT_STANDIN_CUDA_ALL"] = "1"
try:
    # As PyTorch does, before a worker is made. Then the worker chooses CUDA by itself.
    driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    driver.standin_count.restype = ctypes.c_uint64
except (OSError, AttributeError):
    raise unittest.SkipTest("libcuda.so.1 is not the stand-in") from None

import kvscout
import test_worker
from pages import hashes_of, wait_done


def count(name):
    return driver.standin_count(name.encode())


class Case(test_worker.Case):
    """Nothing is asked of the driver that it forbids."""

    def setUp(self):
        super().setUp()
        before = {name: count(name) for name in ("misused", "bad_addresses", "pageable", "cuModuleLoadData")}

        def check():
            after = {name: count(name) - before[name] for name in before}
            self.assertEqual((after["misused"], after["bad_addresses"]), (0, 0))
            # Each worker uploads its planes once as it opens.
            self.assertLessEqual(after["pageable"], after["cuModuleLoadData"])

        self.addCleanup(check)


class Jobs(Case, test_worker.Jobs):
    # An engine on a GPU says by events which layers are there, and announces none.
    test_a_full_worker_is_busy = None
    test_a_job_that_ends_by_its_own_timeout_is_told_by_wait_layer = None
    test_cancel_and_fence_end_what_has_not_started = None
    test_layers_are_announced_awaited_and_progress = None
    test_new_weights_and_a_cleared_cache_end_older_jobs = None


class Planes(Case, test_worker.Planes):
    pass


class Device(Case):
    def test_every_byte_goes_through_the_device(self):
        for method in ("staged", "batch"):
            with self.subTest(method=method):
                worker, pages = self.registered(copy_method=method)
                names = ("bytes_to_host", "bytes_to_device", "bytes_by_kernels")
                before = [count(name) for name in names]
                stored = self.store(worker, pages, method, list(range(8))).bytes
                pages.wipe()
                ids = [40, 3, 22, 9, 50, 51, 11, 63]
                hit = self.hit(method, 2)
                loaded = wait_done(worker, worker.retrieve(hit.ticket, 0, hit.tokens, ids)).bytes
                self.assertTrue(pages.holds(method, ids))
                self.assertEqual(stored, loaded)
                to_host, to_device, by_kernels = (count(name) - old for name, old in zip(names, before))
                copied, kernels = {"staged": (1, 2), "batch": (1, 0)}[method]
                self.assertEqual((to_host, to_device, by_kernels), (copied * stored, copied * loaded, kernels * stored))

    def test_a_device_that_fails_ends_jobs_and_not_the_process(self):
        script = """if True:
            import ctypes, kvscout, sys
            sys.path.insert(0, sys.argv[1])
            import test_device
            case = test_device.Device()
            case.setUp()
            worker, pages = case.registered()
            case.store(worker, pages, "a", list(range(8)))
            test_device.driver.standin_set(b"STICKY", b"1:700")
            for prompt in "bc":
                done = test_device.wait_done(worker, worker.store(0, test_device.hashes_of(prompt, 2), list(range(8))))
                assert done.error.name == "SCOUT_ERR_DEVICE", done
            worker.close()
            print("lives")
        """
        here = os.path.dirname(os.path.abspath(__file__))
        ran = subprocess.run([sys.executable, "-c", script, here], capture_output=True, text=True, timeout=300)
        self.assertEqual((ran.returncode, ran.stdout), (0, "lives\n"), ran.stderr)
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", ran.stderr)

    def test_a_worker_that_must_have_cuda_loads_the_driver_itself(self):
        script = """if True:
            import ctypes, kvscout, sys
            sys.path.insert(0, sys.argv[1])
            from pages import Pages
            server = kvscout.Server(l1_bytes="64Mi", extent_bytes="4Mi")
            worker = kvscout.Worker(endpoint=server.endpoint, backend="cuda", chunk_tokens=64)
            Pages().register(worker)
            driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
            print(driver.standin_count(b"cuModuleLoadData") == 1)
            worker.close()
            server.stop()
        """
        here = os.path.dirname(os.path.abspath(__file__))
        ran = subprocess.run([sys.executable, "-c", script, here], capture_output=True, text=True, timeout=300)
        self.assertEqual((ran.returncode, ran.stdout), (0, "True\n"), ran.stderr)
