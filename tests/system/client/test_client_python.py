#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client in another language, written from <kvscout/protocol.h> alone, against a running server.

usage: test_client_python.py ENDPOINT

It shares no code with the C libraries, so it fails when what they speak is not what the header says. Speaks TAP.
"""

import secrets
import struct
import sys
import time

import zmq

MAGIC, VERSION = b"KVSC", 3
HELLO, PING, LOOKUP, FINISH, STATUS, ERROR, KEYS = 1, 2, 3, 5, 12, 13, 15
OK, TRUNCATED, BAD_VERSION, TOO_LARGE, BAD_RESERVED, BAD_BODY, UNKNOWN_OP, NO_HELLO, STALE_EPOCH = range(9)
NO_SESSION, RANGE, GROUP, SECRET = 12, 17, 23, 25
HASH_BYTES = 32
WAIT_S = 60


# ---- the client ------------------------------------------------------------------------------------------------------


def text_field(text):
    data = text.encode()
    return struct.pack("<H", len(data)) + data


def take_text(body, at=0):
    """The text at @at and the offset behind it."""
    (size,) = struct.unpack_from("<H", body, at)
    if at + 2 + size > len(body):
        raise ValueError("text reaches beyond the body")
    return body[at + 2:at + 2 + size].decode(), at + 2 + size


def operation(opcode, corr, body=b"", kind=0, reserved=0):
    return struct.pack("<BBHIQII", opcode, kind, 0, len(body), corr, 0, reserved) + body


def frame(*operations, epoch=0, magic=MAGIC, version=VERSION, reserved=0):
    body = b"".join(operations)
    head = struct.pack("<4sHHIIQQ", magic, version, reserved, 32 + len(body), len(operations), epoch,
                       time.monotonic_ns() // 1000)
    return head + body


def lookup_body(ticket, hashes):
    n = len(hashes) // HASH_BYTES
    return struct.pack("<QIIIIIIIHH", ticket, n, 0, 0, 0, 0, 0, 0, 0, 0) + text_field("") + hashes


def keys_body(ticket, parts):
    """@parts: (group, hashes), by ascending group."""
    heads = b"".join(struct.pack("<HHI", group, 0, len(hashes) // HASH_BYTES) for group, hashes in parts)
    return (struct.pack("<QHH", ticket, len(parts), 0) + text_field("") + heads
            + b"".join(hashes for _, hashes in parts))


# One group: policy ALL, 1 reader, units of 256 tokens, no span, no margin.
ONE_GROUP = ((0, 1, 256, 0, 0),)


def groups_field(groups):
    return struct.pack("<HH", len(groups), 0) + b"".join(struct.pack("<HHIII", *group) for group in groups)


class Reply:
    def __init__(self, epoch, opcode, status, corr, body):
        self.epoch, self.opcode, self.status, self.corr, self.body = epoch, opcode, status, corr, body

    def text(self):
        text, end = take_text(self.body)
        if end != len(self.body):
            raise ValueError("bytes behind the text")
        return text

    def fields(self, layout):
        if struct.calcsize(layout) != len(self.body):
            raise ValueError(f"body of {len(self.body)} bytes is not {layout}")
        return struct.unpack(layout, self.body)


def take_apart(message):
    """All operations of a frame; anything that the protocol does not allow in a reply is an exception."""
    magic, version, reserved, length, count, epoch, _ = struct.unpack_from("<4sHHIIQQ", message)
    if (magic, version, reserved, length) != (MAGIC, VERSION, 0, len(message)) or epoch == 0 or not 1 <= count <= 4096:
        raise ValueError(f"bad frame header {message[:32].hex()}")
    replies, at = [], 32
    for _ in range(count):
        opcode, kind, status, size, corr, budget, reserved = struct.unpack_from("<BBHIQII", message, at)
        at += 24
        if (kind, budget, reserved) != (1, 0, 0) or (corr == 0 and opcode != ERROR) or at + size > len(message):
            raise ValueError(f"bad operation header at {at - 24} of {message.hex()}")
        replies.append(Reply(epoch, opcode, status, corr, message[at:at + size]))
        at += size
    if at != len(message):
        raise ValueError("bytes behind the last operation")
    return replies


class Client:
    def __init__(self, context, endpoint):
        self.socket = context.socket(zmq.DEALER)
        # Not IMMEDIATE: the first request is sent before the connection stands, and only this server can get it.
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self.token, self.secret = secrets.randbits(64) | 1, bytes(16)
        self.epoch, self.last_corr, self.arrived = 0, 0, []

    def corr(self):
        self.last_corr += 1
        return self.last_corr

    def send(self, message):
        self.socket.send(message)

    def receive(self, count, seconds=WAIT_S):
        """The next @count replies, from however many frames; an exception when they do not come."""
        deadline = time.monotonic() + seconds
        while len(self.arrived) < count:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not self.socket.poll(left_ms):
                raise TimeoutError(f"{len(self.arrived)} of {count} replies came in {seconds} s")
            parts = self.socket.recv_multipart()
            if len(parts) != 1:
                raise ValueError(f"a message of {len(parts)} parts")
            self.arrived += take_apart(parts[0])
        replies, self.arrived = self.arrived[:count], self.arrived[count:]
        return replies

    def ask(self, opcode, body=b"", **head):
        """One operation in one frame, and its reply."""
        corr = self.corr()
        self.send(frame(operation(opcode, corr, body), **{"epoch": self.epoch, **head}))
        (reply,) = self.receive(1)
        if reply.corr not in (corr, 0):
            raise ValueError(f"corr {reply.corr} instead of {corr}")
        return reply

    def hello(self, namespace, groups=ONE_GROUP):
        """The reply, and its fields: credits, max_frame, weights (joined, generation, cleared, secret, id), software, lease_path."""
        reply = self.ask(HELLO, struct.pack("<QHHIHHHHIIQQQQ16s", self.token, 1, HASH_BYTES, 256, 0, 1, 1, 1, 1000, 256, 0, 0, 0, 0,
                                            self.secret) + text_field(namespace) + groups_field(groups))
        if reply.status != OK:
            raise ValueError(f"HELLO: {reply.status} {reply.text()}")
        fields = struct.unpack_from("<IIQ", reply.body)
        self.secret = reply.body[40:56]
        software, at = take_text(reply.body, 64)
        lease_path, at = take_text(reply.body, at)
        if at != len(reply.body):
            raise ValueError("bytes behind the HELLO reply")
        self.epoch = reply.epoch
        return reply, (*fields, software, lease_path)

    def counters(self):
        reply = self.ask(STATUS)
        (count,) = struct.unpack_from("<I", reply.body)
        counters, at = {}, 4
        for _ in range(count):
            name, at = take_text(reply.body, at)
            (counters[name],) = struct.unpack_from("<Q", reply.body, at)
            at += 8
        if reply.status != OK or at != len(reply.body) or len(counters) != count:
            raise ValueError("bad STATUS reply")
        return counters


# ---- the checks ------------------------------------------------------------------------------------------------------


def random_hashes(count):
    return secrets.token_bytes(count * HASH_BYTES)


def is_refusal(reply, opcode, corr, status):
    """Whether @reply is what it should be, and gives a reason that a person can read."""
    return (reply.opcode, reply.corr, reply.status) == (opcode, corr, status) and len(reply.text()) > 0


def dropped(counters):
    return sum(value for name, value in counters.items() if "drop" in name)


class Checks:
    """Each method is a case, run in the order written here; the docstring is its name. They share one conversation."""

    def __init__(self, context, endpoint):
        self.client = Client(context, endpoint)
        self.stranger = Client(context, endpoint)
        self.tickets = [secrets.randbits(64) | 1 for _ in range(2)]

    def ping_before_hello(self):
        """PING and STATUS are answered before HELLO"""
        reply = self.client.ask(PING)
        return reply.opcode == PING and reply.status == OK and reply.body == b"" and self.client.counters()

    def hello(self):
        """HELLO gives an epoch, credits and a frame limit"""
        reply, (credits, max_frame, _, software, _) = self.client.hello("python-client")
        return reply.opcode == HELLO and reply.epoch != 0 and credits > 0 and max_frame >= 4096 and software != ""

    def hello_again(self):
        """HELLO again with the same token is the same server start"""
        epoch = self.client.epoch
        reply, _ = self.client.hello("python-client")
        return reply.epoch == epoch

    def secret(self):
        """HELLO with the token and another secret is SECRET, and the right one still goes"""
        right = self.client.secret
        self.client.secret = secrets.token_bytes(16)
        try:
            self.client.hello("python-client")
            return False
        except ValueError as refusal:
            if not str(refusal).startswith(f"HELLO: {SECRET} "):
                return False
        self.client.secret = right
        return right != bytes(16) and self.client.hello("python-client")[0].status == OK and self.client.secret == right

    def two_lookups(self):
        """two LOOKUPs in one frame are each answered once, with hit 0"""
        corrs = [self.client.corr(), self.client.corr()]
        self.client.send(frame(*(operation(LOOKUP, corr, lookup_body(ticket, random_hashes(3)))
                                 for corr, ticket in zip(corrs, self.tickets)), epoch=self.client.epoch))
        replies = self.client.receive(2)
        return (sorted(reply.corr for reply in replies) == corrs
                and all((reply.opcode, reply.status) == (LOOKUP, OK) for reply in replies)
                and all(reply.fields("<IIIII") == (0, 0, 0, 0, 0) for reply in replies))

    def keys(self):
        """KEYS answers each of 11 objects with two bits, and opens a session; a group that HELLO did not name is GROUP"""
        ticket = secrets.randbits(64) | 1
        reply = self.client.ask(KEYS, keys_body(ticket, [(0, random_hashes(11))]))
        if (reply.opcode, reply.status) != (KEYS, OK) or reply.fields("<IIII2s2s") != (11, 0, 0, 0, b"\0\0", b"\0\0"):
            return False
        refused = self.client.ask(KEYS, keys_body(secrets.randbits(64) | 1, [(1, random_hashes(1))]))
        return (is_refusal(refused, KEYS, self.client.last_corr, GROUP)
                and self.client.ask(FINISH, struct.pack("<QII", ticket, 0, 0)).status == OK)

    def unknown_opcode(self):
        """an unknown opcode is answered with that opcode, UNKNOWN_OP and a text"""
        reply = self.client.ask(200, b"whatever this is")
        return is_refusal(reply, 200, self.client.last_corr, UNKNOWN_OP)

    def unknown_opcode_has_neighbours(self):
        """an unknown opcode does not disturb the others in its frame"""
        corrs = [self.client.corr() for _ in range(3)]
        self.client.send(frame(operation(PING, corrs[0]), operation(201, corrs[1]), operation(PING, corrs[2]),
                               epoch=self.client.epoch))
        replies = {reply.corr: reply for reply in self.client.receive(3)}
        return ([replies[corr].status for corr in corrs] == [OK, UNKNOWN_OP, OK] and replies[corrs[1]].opcode == 201)

    def truncated(self):
        """a truncated frame is answered by ERROR, corr 0, TRUNCATED, and nothing of it is executed"""
        ticket = secrets.randbits(64) | 1
        message = frame(operation(LOOKUP, self.client.corr(), lookup_body(ticket, random_hashes(1))),
                        operation(PING, self.client.corr()), epoch=self.client.epoch)
        for cut in (1, 24, len(message) - 33):
            self.client.send(message[:-cut])
            if not is_refusal(self.client.receive(1)[0], ERROR, 0, TRUNCATED):
                return False
        return self.client.ask(FINISH, struct.pack("<QII", ticket, 0, 0)).status == NO_SESSION

    def reaches_beyond(self):
        """an operation that reaches beyond the end is TRUNCATED"""
        message = bytearray(frame(operation(PING, self.client.corr()), epoch=self.client.epoch))
        message[36] = 1
        self.client.send(bytes(message))
        return is_refusal(self.client.receive(1)[0], ERROR, 0, TRUNCATED)

    def no_operations(self):
        """a frame without operations is TOO_LARGE"""
        self.client.send(frame(epoch=self.client.epoch))
        return is_refusal(self.client.receive(1)[0], ERROR, 0, TOO_LARGE)

    def wrong_version(self):
        """another version is BAD_VERSION, and the text names the server's"""
        reply = self.client.ask(PING, version=VERSION + 1)
        return is_refusal(reply, ERROR, 0, BAD_VERSION) and str(VERSION) in reply.text()

    def wrong_magic(self):
        """what is not this protocol gets no answer, and the next PING one"""
        self.client.send(frame(operation(PING, self.client.corr()), epoch=self.client.epoch, magic=b"HTTP"))
        self.client.send(b"KVSC")
        reply = self.client.ask(PING)
        return (reply.opcode, reply.status, reply.corr) == (PING, OK, self.client.last_corr)

    def reserved_bits(self):
        """reserved bits, a reply from a client, and corr 0 are BAD_RESERVED"""
        epoch, corr = self.client.epoch, self.client.corr()
        for message in (frame(operation(PING, corr), epoch=epoch, reserved=1),
                        frame(operation(PING, corr, reserved=1 << 31), epoch=epoch),
                        frame(operation(PING, corr, kind=1), epoch=epoch),
                        frame(operation(PING, 0), epoch=epoch)):
            self.client.send(message)
            if not is_refusal(self.client.receive(1)[0], ERROR, 0, BAD_RESERVED):
                return False
        return True

    def without_hello(self):
        """LOOKUP before HELLO is NO_HELLO"""
        # With the right epoch, so that nothing but the missing HELLO is wrong with it.
        reply = self.stranger.ask(LOOKUP, lookup_body(1, random_hashes(1)), epoch=self.client.epoch)
        return is_refusal(reply, LOOKUP, self.stranger.last_corr, NO_HELLO)

    def wrong_epoch(self):
        """an operation for another server start is STALE_EPOCH, and PING is answered all the same"""
        reply = self.client.ask(LOOKUP, lookup_body(1, random_hashes(1)), epoch=self.client.epoch ^ 1)
        return (is_refusal(reply, LOOKUP, self.client.last_corr, STALE_EPOCH)
                and self.client.ask(PING, epoch=self.client.epoch ^ 1).status == OK)

    def wrong_length(self):
        """a body that is longer or shorter than its fields is BAD_BODY"""
        whole = lookup_body(secrets.randbits(64) | 1, random_hashes(2))
        for opcode, body in ((LOOKUP, whole + b"\0"), (LOOKUP, whole[:-1]), (LOOKUP, whole[:5]), (PING, b"\0"),
                             (FINISH, b"\0" * 17)):
            if not is_refusal(self.client.ask(opcode, body), opcode, self.client.last_corr, BAD_BODY):
                return False
        return True

    def out_of_range(self):
        """a field outside its range is RANGE, and the text names it"""
        body = struct.pack("<QIIIIIIIHH", 1, 1, 0, 0, 2, 0, 0, 0, 0, 0) + text_field("") + random_hashes(1)
        reply = self.client.ask(LOOKUP, body)
        return is_refusal(reply, LOOKUP, self.client.last_corr, RANGE) and "skip" in reply.text()

    def finish(self):
        """FINISH ends both sessions"""
        replies = [self.client.ask(FINISH, struct.pack("<QII", ticket, 0, 0)) for ticket in self.tickets]
        return all((reply.opcode, reply.status, reply.body) == (FINISH, OK, bytes(8)) for reply in replies)

    def finish_again(self):
        """FINISH again is NO_SESSION"""
        return all(is_refusal(self.client.ask(FINISH, struct.pack("<QII", ticket, 0, 0)), FINISH, self.client.last_corr,
                              NO_SESSION) for ticket in self.tickets)

    def counter_of_drops(self):
        """STATUS counts what was dropped"""
        before = dropped(self.client.counters())
        self.client.send(b"\0" * 100)
        return before >= 2 and dropped(self.client.counters()) > before

    def nothing_more(self):
        """nothing was answered twice"""
        # What a server sends to one peer stays in order, so anything that was left over comes before these.
        return (self.client.ask(PING).status == OK and self.stranger.ask(PING).status == OK
                and not self.client.arrived and not self.stranger.arrived)


def run_case(number, case):
    try:
        passed, why = case(), "not as the protocol says"
    except (ValueError, TimeoutError, KeyError, struct.error, zmq.ZMQError) as error:
        passed, why = False, f"{type(error).__name__}: {error}"
    print(f"{'ok' if passed else 'not ok'} {number} - {case.__doc__}", flush=True)
    if not passed:
        print(f"# {why}", flush=True)
    return bool(passed)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    context = zmq.Context()
    checks = Checks(context, sys.argv[1])
    cases = [getattr(checks, name) for name in vars(Checks) if not name.startswith("_")]
    print(f"1..{len(cases)}", flush=True)
    results = [run_case(number, case) for number, case in enumerate(cases, 1)]
    context.destroy(linger=0)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
