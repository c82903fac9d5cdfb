# SPDX-License-Identifier: Apache-2.0
"""The tier of an engine that is inert, and for a vLLM that kvscout does not know: made of that vLLM's own base class, it finds nothing
and keeps nothing, whatever that vLLM calls it with."""

import inspect
import logging

from vllm.v1.kv_offload import base as offload
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from ..vllm import inert, logs
from ..vllm.stand_in import complete

logger = logging.getLogger("vllm.kvscout")


class Inert(SecondaryTierManager):
    reason = ""  # why

    def __init__(self, *args, **more):
        """@more: what vLLM passes, and the user's keys."""
        taken = inspect.signature(SecondaryTierManager.__init__).parameters
        super().__init__(*args, **{key: value for key, value in more.items() if key in taken})
        self._ended = []
        logs.join_vllm()
        logger.warning(inert.line("kvscout tier", self.reason))

    def submit_store(self, job, *args, **more):
        self._ended.append(JobResult(job_id=job.job_id, success=False))

    def submit_load(self, job, *args, **more):
        self.submit_store(job)

    def get_finished_jobs(self, *args, **more):
        ended, self._ended = self._ended, []
        return ended

    def has_pending_work(self, *args, **more):
        return bool(self._ended)


def tier(reason, **methods):
    """The class. @methods: more of them."""
    answers = {"lookup": offload.LookupResult.MISS, "on_new_request": offload.RequestOffloadingContext}
    return type("KVScoutTier", (Inert,), {"reason": reason, **complete((Inert,), answers), **methods})
