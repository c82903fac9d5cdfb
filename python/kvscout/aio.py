# SPDX-License-Identifier: Apache-2.0
"""kvscout in an asyncio program: ``await`` a lookup, and ``async for`` over the ends of a worker's jobs.

    hit = await aio.lookup(client, "request 1", hashes, len(tokens))
    async for done in aio.ends(worker):
        ...

The event loop waits on the descriptor of the client or worker; nothing polls, and no thread is started. All coroutines of one
client or worker run in one thread, that of their loop. An await that is cancelled leaves its lookup open: finish() ends it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Union

from ._kvscout import Client, ClosedError, Done, Hit, Keys, Worker

if TYPE_CHECKING:
    from ._kvscout import _Hashes, _Ids

__all__ = ["ends", "lookup", "lookup_keys"]

# close() of another thread ends a wait, and no descriptor says so: a wait looks at least so often.
_LOOK_S = 0.25


class _Bell:
    """Rings when an answer of a client has landed. Shared by all who wait for one in a loop, because a loop has one reader for a
    descriptor."""

    _all: "dict[tuple[int, int], _Bell]" = {}  # by loop and descriptor

    def __init__(self, client: Client) -> None:
        self._client = client
        self._event = asyncio.Event()
        self.users = 0

    @classmethod
    @contextlib.contextmanager
    def of(cls, client: Client) -> "Iterator[_Bell]":
        loop, fd = asyncio.get_running_loop(), client.fileno()
        bell = cls._all.get((id(loop), fd))
        if bell is None or bell._client is not client:
            bell = cls._all[id(loop), fd] = cls(client)
            loop.add_reader(fd, bell._ring)
        bell.users += 1
        try:
            yield bell
        finally:
            bell.users -= 1
            if bell.users == 0:
                loop.remove_reader(fd)
                cls._all.pop((id(loop), fd), None)

    def _ring(self) -> None:
        with contextlib.suppress(ClosedError):
            self._client.fd_clear()
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), _LOOK_S)


async def lookup(
    client: Client, id: str, hashes: "_Hashes", prompt_tokens: int, computed_tokens: int = 0, tenant: str | None = None,
    expect_tokens: int = 0, stride: int = 1, *, timeout_ms: int = 0, want_lengths: int = 0, from_token: int = 0, load: bool = False
) -> Hit:
    """Client.try_lookup(), and its answer as soon as it has landed: at the lookup's deadline one with the reason 'timeout'."""
    hit = client.try_lookup(
        id, hashes, prompt_tokens, computed_tokens, tenant, expect_tokens, stride,
        timeout_ms=timeout_ms, want_lengths=want_lengths, from_token=from_token, load=load,
    )
    if hit is not None:
        return hit
    with _Bell.of(client) as bell:
        while (hit := client.poll(id, computed_tokens)) is None:
            await bell.wait()
    return hit


async def lookup_keys(
    client: Client, id: str, hashes: "_Hashes", groups: "Union[_Ids, None]" = None, tenant: str | None = None, *,
    timeout_ms: int = 0
) -> Keys:
    """Client.lookup_keys(), and its answer as soon as it has landed."""
    with _Bell.of(client) as bell:
        while (keys := client.lookup_keys(id, hashes, groups, tenant, timeout_ms=timeout_ms)) is None:
            await bell.wait()
    return keys


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def ends(worker: Worker) -> AsyncIterator[Done]:
    """The end of each job of @worker, in the order in which Worker.poll() reports them, until the worker is closed. Whatever else
    calls poll() takes ends away from here."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            found: Sequence[Done] = worker.poll()
            fd = worker.fileno()
        except ClosedError:
            return
        for done in found:
            yield done
        if found:
            continue
        # The descriptor stays readable until poll() has all, so there is no reader while the caller is busy.
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, _set, ready)
        try:
            await asyncio.wait((ready,), timeout=_LOOK_S)
        finally:
            loop.remove_reader(fd)
