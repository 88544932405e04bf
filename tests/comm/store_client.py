"""A client of the rendezvous store, written from docs/STORE.md alone."""
import hashlib
import hmac
import os
import socket
import struct

JOIN, SET, GET, ADD, COMPARE_SET, DELETE = range(6)
DONE, ABSENT, FULL, NO_NUMBER = range(4)
REFUSALS = {1: "another version", 2: "another job", 3: "another secret", 4: "no room"}


def mac(key, text):
    return hmac.new(key, text, hashlib.sha512).digest()[:32]


def blake(size, text, key=b""):
    return hashlib.blake2b(text, digest_size=size, key=key).digest()


class Refused(Exception):
    pass


class Closed(Exception):
    pass


class Client:
    """One connection; `join` False stops after the welcome."""

    def __init__(self, host, port, job, secret_text, version=1, join=True, timeout=60):
        secret = blake(32, secret_text.strip(b"\t\n\v\f\r "))
        job_tag = blake(16, b"sherd store job" + job)
        key = blake(32, b"sherd store key" + job, secret)
        self.socket = socket.create_connection((host, port), timeout=timeout)
        nonce = os.urandom(24)
        hello = b"sherd-kv" + struct.pack("<II", version, 0) + job_tag + nonce
        self.socket.sendall(hello + mac(key, hello))
        answer = self.read(72)
        mark, answered_version, status = struct.unpack_from("<8sII", answer)
        assert mark == b"sherd-ok" and answered_version == 1, answer
        if status:
            assert self.socket.recv(1) == b"", "the connection is closed"
            self.socket.close()
            assert answer[16:] == bytes(56), "a refusal proves nothing"
            raise Refused(REFUSALS[status])
        keys = blake(64, b"sherd store line" + nonce + answer[16:40], key)
        self.up, self.down = keys[:32], keys[32:]
        self.sent = self.received = 0
        assert hmac.compare_digest(mac(self.down, answer[:40]), answer[40:]), "who is this?"
        if join:
            self.ask(JOIN)

    def read(self, count):
        got = b""
        while len(got) < count:
            try:
                more = self.socket.recv(count - len(got))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed
            got += more
        return got

    def frame(self, body):
        """The next frame up, as bytes."""
        length = struct.pack("<I", len(body))
        tag = mac(self.up, struct.pack("<Q", self.sent) + length + body)
        self.sent += 1
        return length + body + tag

    @staticmethod
    def body(op, key=b"", value=b"", expected=b"", number=0):
        return struct.pack("<BBHIq", op, 0, len(key), len(expected), number) + key + expected + value

    def answer(self):
        """(status, number, value) of the next answer."""
        length = self.read(4)
        body = self.read(struct.unpack("<I", length)[0])
        tag = self.read(32)
        assert hmac.compare_digest(tag, mac(self.down, struct.pack("<Q", self.received) + length + body)), "not authentic"
        self.received += 1
        status, zero, number = struct.unpack_from("<IIq", body)
        assert zero == 0
        return status, number, body[16:]

    def ask(self, op, *args, **kwargs):
        self.socket.sendall(self.frame(self.body(op, *args, **kwargs)))
        return self.answer()

    def close(self):
        self.socket.close()
