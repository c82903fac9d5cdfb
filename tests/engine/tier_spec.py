# SPDX-License-Identifier: Apache-2.0
"""vLLM's TieringOffloadingSpec with a worker that copies on the CPU, because vLLM's own refuses one. For tests:
scheduler, managers, region and tiers are vLLM's. A chunk is one block; the copies are done when they are submitted."""

import time

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuWorker(OffloadingWorker):
    def __init__(self, kv_caches, region):
        self._caches = kv_caches
        self._region = region
        self._views = [region.create_next_worker_view(cache.page_size_bytes) for cache in kv_caches.tensors]
        self._ended = []

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec.block_ids, to_region=True)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):
        return self._copy(job_id, dst_spec, src_spec.block_ids, to_region=False)

    def _copy(self, job_id, gpu, chunks, to_region):
        begin, moved, at = time.monotonic(), 0, 0
        for refs, n in zip(self._caches.group_data_refs, gpu.group_sizes, strict=True):
            for block, chunk in zip(gpu.block_ids[at : at + n], chunks[at : at + n], strict=True):
                for ref in refs:
                    page = self._caches.tensors[ref.tensor_idx].tensor[int(block)][: ref.page_size_bytes]
                    row = self._views[ref.tensor_idx][int(chunk)][: ref.page_size_bytes]
                    row.copy_(page) if to_region else page.copy_(row)
                    moved += ref.page_size_bytes
            at += n
        self._ended.append(TransferResult(job_id, True, moved, time.monotonic() - begin))
        return True

    def get_finished(self):
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids):
        return

    def shutdown(self):
        self._views.clear()
        self._region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if self.blocks_per_chunk != 1:
            raise ValueError("the test's worker copies one block for each chunk")
        region = SharedOffloadRegion(
            engine_id=self._engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker,
        )
        return CpuWorker(kv_caches, region)
