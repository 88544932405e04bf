#!/usr/bin/env python3
"""Holds the rendezvous store's server against docs/STORE.md, by a client that was written from it alone.

usage: store_check.py STORE-HOST
"""
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from store_client import (ABSENT, ADD, COMPARE_SET, DELETE, DONE, FULL, GET, JOIN, NO_NUMBER, SET, Client, Closed, Refused)

HOST_PROGRAM = ""
SECRET = b"  a secret with spaces around it \n"


class Host:
    """The server program."""

    def __init__(self, host="127.0.0.1", job="j\u00f6b"):
        self.job = job.encode()
        self.clients = []
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(SECRET)
        self.process = subprocess.Popen([HOST_PROGRAM, host, "0", job, file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        os.unlink(file.name)
        self.host, _, port = self.address.rpartition(":")
        self.host, self.port = self.host.strip("[]"), int(port or 0)

    def client(self, **kwargs):
        self.clients.append(Client(self.host, self.port, kwargs.pop("job", self.job), kwargs.pop("secret", SECRET), **kwargs))
        return self.clients[-1]

    def stop(self):
        """(what it printed at the end, its log)"""
        if self.process.returncode is None:
            out, log = self.process.communicate(input="", timeout=60)
            self.said = out.strip(), log
        for client in self.clients:
            client.close()
        return self.said


class Protocol(unittest.TestCase):
    def setUp(self):
        self.host = Host()
        self.addCleanup(self.host.process.kill)

    def tearDown(self):
        self.host.stop()

    def test_every_request(self):
        client = self.host.client()
        big = os.urandom(65536)
        key = b"k" * 256
        self.assertEqual(client.ask(GET, key), (ABSENT, 0, b""))
        self.assertEqual(client.ask(SET, key, big), (DONE, 0, b""))
        self.assertEqual(client.ask(GET, key), (DONE, 0, big))
        self.assertEqual(client.ask(COMPARE_SET, key, b"", expected=big, number=1), (DONE, 1, b""))
        self.assertEqual(client.ask(COMPARE_SET, key, b"x", expected=big, number=1), (DONE, 0, b""))
        self.assertEqual(client.ask(COMPARE_SET, key, b"x", number=0), (DONE, 0, b""))
        self.assertEqual(client.ask(COMPARE_SET, key, b"x", number=1), (DONE, 1, b""))
        self.assertEqual(client.ask(COMPARE_SET, b"new", big, number=0), (DONE, 1, b""))
        self.assertEqual(client.ask(ADD, key, number=1), (NO_NUMBER, 0, b""))
        self.assertEqual(client.ask(ADD, b"n", number=-(2**63)), (DONE, -(2**63), b""))
        self.assertEqual(client.ask(ADD, b"n", number=-1), (NO_NUMBER, 0, b""))
        self.assertEqual(client.ask(GET, b"n"), (DONE, 0, b"-9223372036854775808"))
        self.assertEqual(client.ask(DELETE, key), (DONE, 1, b""))
        self.assertEqual(client.ask(DELETE, key), (DONE, 0, b""))
        self.assertEqual(client.ask(GET, key), (ABSENT, 0, b""))
        client.close()
        self.assertEqual(self.host.stop()[0], "1 joined, 0 refused, 2 keys")

    def test_keys_are_any_bytes_but_zero(self):
        client = self.host.client()
        self.assertEqual(client.ask(SET, b"\xff\x01 \n", b"v")[0], DONE)
        self.assertEqual(client.ask(GET, b"\xff\x01 \n"), (DONE, 0, b"v"))

    def test_full(self):
        client = self.host.client()
        value = bytes(65536)
        statuses = {i: client.ask(SET, b"%d" % i, value)[0] for i in range(1030)}
        self.assertEqual(statuses[1000], DONE)
        self.assertEqual(statuses[1029], FULL)  # 64 MiB are 1024 values, less their keys

    def test_a_wait_ends_by_a_set_by_time_and_by_another_request(self):
        waiting, other = self.host.client(), self.host.client()
        start = time.monotonic()
        threading.Timer(0.2, lambda: other.ask(SET, b"late", b"v")).start()
        self.assertEqual(waiting.ask(GET, b"late", number=20000), (DONE, 0, b"v"))
        self.assertGreater(time.monotonic() - start, 0.19)
        start = time.monotonic()
        self.assertEqual(waiting.ask(GET, b"never", number=300), (ABSENT, 0, b""))
        self.assertGreater(time.monotonic() - start, 0.299)
        frames = [waiting.frame(waiting.body(GET, b"never", number=2**63 - 1)), waiting.frame(waiting.body(GET, b"late")),
                  waiting.frame(waiting.body(ADD, b"n", number=5))]
        waiting.socket.sendall(b"".join(frames))
        self.assertEqual([waiting.answer() for _ in frames], [(ABSENT, 0, b""), (DONE, 0, b"v"), (DONE, 5, b"")])

    def test_frames_may_come_in_any_pieces(self):
        client = self.host.client()
        for byte in client.frame(client.body(ADD, b"n", number=3)):
            client.socket.sendall(bytes([byte]))
        self.assertEqual(client.answer(), (DONE, 3, b""))
        frames = b"".join(client.frame(client.body(ADD, b"n", number=1)) for _ in range(500))
        client.socket.sendall(frames)
        self.assertEqual([client.answer()[1] for _ in range(500)], list(range(4, 504)))

    def test_what_is_no_request_ends_the_connection(self):
        good = Client.body(SET, b"key", b"value")
        bodies = {
            "op": bytes([6]) + good[1:],
            "zero": good[:1] + b"\1" + good[2:],
            "no key": Client.body(SET, b"", b"value"),
            "long key": Client.body(GET, b"k" * 257),
            "zero in a key": Client.body(GET, b"a\0b"),
            "key beyond the end": struct.pack("<BBHIq", SET, 0, 200, 0, 0) + b"key",
            "expected beyond the end": struct.pack("<BBHIq", COMPARE_SET, 0, 3, 2**32 - 1, 1) + b"key",
            "long value": Client.body(SET, b"k", bytes(65537)),
            "negative wait": Client.body(GET, b"k", number=-1),
            "a get with a value": Client.body(GET, b"k", b"v"),
            "a set with a number": Client.body(SET, b"k", b"v", number=1),
            "a delete with a value": Client.body(DELETE, b"k", b"v"),
            "an add with a value": Client.body(ADD, b"k", b"v", number=1),
            "expected of what must not be there": Client.body(COMPARE_SET, b"k", b"v", b"e", 0),
            "a second join": Client.body(JOIN),
            "short": good[:15],
            "empty": b"",
        }
        for name, body in bodies.items():
            with self.subTest(name):
                client = self.host.client()
                client.socket.sendall(client.frame(body))
                self.assertRaises(Closed, client.answer)
        self.assertEqual(self.host.stop()[0], f"{len(bodies)} joined, 0 refused, 0 keys")

    def test_a_first_frame_is_a_join(self):
        client = self.host.client(join=False)
        client.socket.sendall(client.frame(client.body(SET, b"k", b"v")))
        self.assertRaises(Closed, client.answer)
        out, log = self.host.stop()
        self.assertEqual(out, "0 joined, 1 refused, 0 keys")
        self.assertEqual(log.count("a connection from 127.0.0.1:"), 1)

    def test_refusals(self):
        for cause, arguments in {"another secret": {"secret": b"another secret than theirs"}, "another job": {"job": b"other"},
                                 "another version": {"version": 2}}.items():
            with self.assertRaisesRegex(Refused, cause):
                self.host.client(**arguments)
        with socket.create_connection((self.host.host, self.host.port), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n" + 100 * b"x")
            try:
                self.assertEqual(raw.recv(1), b"")
            except ConnectionResetError:
                pass
        self.assertEqual(self.host.stop()[0], "0 joined, 4 refused, 0 keys")

    def test_a_killed_server_is_seen(self):
        client = self.host.client()
        client.socket.sendall(client.frame(client.body(GET, b"never", number=60000)))
        self.host.process.kill()
        start = time.monotonic()
        self.assertRaises(Closed, client.answer)
        self.assertLess(time.monotonic() - start, 20)


class Addresses(unittest.TestCase):
    def test_ipv6(self):
        host = Host("::1")
        if not host.port:
            self.skipTest(host.stop()[1].strip())
        self.addCleanup(host.process.kill)
        self.assertEqual(host.client().ask(ADD, b"n", number=7), (DONE, 7, b""))
        host.stop()


if __name__ == "__main__":
    HOST_PROGRAM = sys.argv.pop(1)
    unittest.main()
