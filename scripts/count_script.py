#!/usr/bin/env python3
"""Counts the instructions that Redis spends on an order, for batches of several sizes.

Time depends on the neighbours of a busy machine, and instructions do not. The program writes the
commands of `reserve_home` as the batchers send them, replays them against a private redis-server under
`valgrind --tool=callgrind`, one batch after another, and prints the instructions of each order.

usage: scripts/count_script.py [--buyers N] [--script FILE] [BATCH ...]
"""

import argparse
import hashlib
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = ["{vase:0}:" + key for key in ("stock", "decisions", "buyers", "outbox", "spillovers")]
WARM_UP_ORDERS, WARM_UP_BATCH = 20_000, 250
DEADLINE_MS, MARGIN_MS = 4_102_444_800_000, 300_000
UNITS = 1_000_000_000


def command(*words):
    """The words in the protocol of Redis."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%s" % (len(parts), b"".join(parts))


def setup(script):
    """A segment that is open, as `open_segment` leaves it."""
    stock, decisions, buyers, outbox, _ = KEYS
    fields = {
        "available": UNITS, "limit": 0, "state": "open", "opens_ms": 0, "closes_ms": 0,
        "epoch": 1, "hold_ms": 600_000, "last": "0-0", "segments": 8,
    }
    return [
        command("SCRIPT", "LOAD", script),
        command("HSET", stock, *[word for pair in fields.items() for word in pair]),
        command("HSET", decisions, "", 1),
        command("HSET", buyers, "", 1),
        command("XADD", outbox, "*", "k", "opened", "u", 1, "e", 1),
    ]


def batch(script, first, size, buyers):
    """Orders number `first` and on, of one unit each."""
    ids, names, packed = [], [], []
    for number in range(first, first + size):
        id_ = hashlib.sha256(b"%d" % number).digest()[:16]
        chosen = int.from_bytes(hashlib.md5(b"%d" % number).digest()[:4], "big") % buyers
        name = b"buyer-%07d" % chosen
        ids.append(id_)
        names.append(name)
        packed.append(id_ + struct.pack(">IB", 1, len(name)) + name)
    sha = hashlib.sha1(script).hexdigest()
    head = ["EVALSHA", sha, len(KEYS), *KEYS, size, DEADLINE_MS, MARGIN_MS, "vase:0"]
    return command(*head, 1, b"".join(packed), *ids, *names)


class Server:
    """A redis-server under callgrind, which counts only where it is told to."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.counts = pathlib.Path(folder) / "counts"
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder,
                 "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--hz", "1"]
        self.process = subprocess.Popen(
            valgrind + [f"--callgrind-out-file={self.counts}"] + redis,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.connection = self.connect(port)

    def connect(self, port):
        for _ in range(600):
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                time.sleep(0.1)
        sys.exit("redis-server did not start")

    def ask(self, request):
        self.connection.sendall(request)
        reply = self.connection.recv(65536)
        if reply.startswith(b"-"):
            sys.exit(reply.decode())
        return reply

    def counting(self, switch):
        subprocess.run(["callgrind_control", "-i", switch, str(self.process.pid)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        totals = re.search(r"^totals: (\d+)", self.counts.read_text(), re.MULTILINE)
        return int(totals[1])


def instructions(script, size, buyers):
    """Of one order in batches of this size."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        for request in setup(script):
            server.ask(request)
        for first in range(0, WARM_UP_ORDERS, WARM_UP_BATCH):
            server.ask(batch(script, first, WARM_UP_BATCH, buyers))
        batches = max(40, 1000 // size)
        server.counting("on")
        for turn in range(batches):
            reply = server.ask(batch(script, WARM_UP_ORDERS + turn * size, size, buyers))
        server.counting("off")
        if not reply.startswith(b"*5\r\n$2\r\nok\r\n"):
            sys.exit(f"expected orders that are taken, found {reply!r}")
        return server.stop() / (batches * size)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("sizes", nargs="*", type=int, default=[1, 8, 23, 64], metavar="BATCH")
    arguments.add_argument("--buyers", type=int, default=4096)
    arguments.add_argument("--script", type=pathlib.Path, default=ROOT / "lua/reserve_home.lua")
    chosen = arguments.parse_args()
    for program in ("valgrind", "callgrind_control", "redis-server"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing")
    script = chosen.script.read_bytes()
    for size in chosen.sizes:
        count = instructions(script, size, chosen.buyers)
        print(f"batches of {size}: {count:,.0f} instructions an order", flush=True)


if __name__ == "__main__":
    main()
