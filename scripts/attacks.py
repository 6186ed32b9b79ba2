#!/usr/bin/env python3
"""Measures what one hostile client costs, on a running `stockade up`.

Each measurement attacks a private instance as one of the findings of `docs/safety.md` did, and prints
what the attack cost. With two programs it shows both, for a comparison of before and after.

usage: scripts/attacks.py [--only NAME[,NAME...]] PROGRAM [PROGRAM ...]

An instance of the API without `/v1`, as early versions had it, is recognized.
"""

import argparse
import base64
import collections
import concurrent.futures
import hashlib
import hmac
import http.client
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.parse

READY_SECONDS = 60
# Idle connections and heads end after 30 seconds.
WAIT_SECONDS = 65


class Redis:
    """The stock server, spoken to in its own protocol."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.file = self.socket.makefile("rb")
        if parts.password:
            words = [parts.username, parts.password] if parts.username else [parts.password]
            self.call("AUTH", *map(urllib.parse.unquote, words))

    def send(self, *words):
        encoded = [str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
        self.socket.sendall(b"*%d\r\n%s" % (len(parts), b"".join(parts)))

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return rest

    def call(self, *words):
        self.send(*words)
        return self.read()

    def calls(self, *names):
        """How often the server has run these commands."""
        stats = self.call("INFO", "commandstats").decode()
        found = dict(re.findall(r"cmdstat_(\w+):calls=(\d+)", stats))
        return sum(int(found.get(name, 0)) for name in names)


class Instance:
    """A `stockade up` in a folder of its own."""

    def __init__(self, program, limit=None):
        self.program = program
        self.folder = tempfile.TemporaryDirectory(prefix="stockade-attacks-")
        path = pathlib.Path(self.folder.name)
        command = [program, "up", "--dir", str(path), "--listen", "127.0.0.1:0"]
        if limit:
            command = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command]
        with open(path / "log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_SECONDS
        while not (path / "address").exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.stop()
                sys.exit(f"{program} did not start: {(path / 'log').read_text()}")
            time.sleep(0.05)
        address = (path / "address").read_text().strip()
        self.host, self.port = address.removeprefix("http://").split(":")
        self.settings = tomllib.loads((path / "run.toml").read_text())
        self.redis = Redis(self.settings["redis_url"])
        # Without a token it is 401, where there is such a path.
        self.prefix = "" if self.request("GET", "/v1/orders")[0] == 404 else "/v1"

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.folder.cleanup()

    def connection(self, timeout=60):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None, connection=None):
        """Status and body; over a connection of its own unless there is one."""
        own = connection or self.connection()
        body = json.dumps(body) if isinstance(body, dict) else body
        own.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        answer = own.getresponse()
        text = answer.read()
        if connection is None:
            own.close()
        return answer.status, text

    def admin(self, method, path, body=None):
        status, text = self.request(
            method,
            self.prefix + path,
            body,
            {"Authorization": f"Bearer {self.settings['admin_token']}"},
        )
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {text.decode()}")
        return json.loads(text)

    def token(self, buyer, **claims):
        def part(value):
            return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

        claims = {"sub": buyer, "exp": int(time.time()) + 3600, **claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        text = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
        secret = self.settings["jwt_secret"].encode()
        tag = base64.urlsafe_b64encode(hmac.digest(secret, text, "sha256")).rstrip(b"=")
        return (text + b"." + tag).decode()

    def order(self, item, buyer, key, quantity=1, connection=None, token=None):
        return self.request(
            "POST",
            f"{self.prefix}/items/{item}/orders",
            {"quantity": quantity},
            {"Authorization": f"Bearer {token or self.token(buyer)}", "Idempotency-Key": key},
            connection,
        )

    def create(self, item, stock, **fields):
        self.admin("POST", "/items", {"id": item, "stock": stock, **fields})
        self.admin("PUT", f"/items/{item}/state", {"state": "open"})

    def healthz_ms(self):
        begin = time.perf_counter()
        self.request("GET", "/healthz")
        return (time.perf_counter() - begin) * 1000


def signatures(instance):
    """A payment with thousands of signatures: what one request costs, and what it does to others."""
    body = json.dumps({"payment": "p", "filler": "x" * 16_000})
    path = f"{instance.prefix}/orders/00000000-0000-0000-0000-000000000000/payment"
    header = {"Stockade-Signature": f"t={int(time.time())}" + ",v1=" * 4000}
    connection = instance.connection()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        instance.request("POST", path, body, header, instance.connection())
        times.append((time.perf_counter() - begin) * 1000)
    connection.close()
    stop = threading.Event()

    def attack():
        while not stop.is_set():
            instance.request("POST", path, body, header)

    attackers = [threading.Thread(target=attack) for _ in range(8)]
    for attacker in attackers:
        attacker.start()
    others = [instance.healthz_ms() for _ in range(30)]
    stop.set()
    for attacker in attackers:
        attacker.join()
    yield "4,000 signatures: one request", f"{statistics.median(times):.1f} ms"
    yield "`/healthz` beside 8 such clients, median", f"{statistics.median(others):.0f} ms"


def silence(program):
    """Connections that send nothing take all descriptors."""
    instance = Instance(program, limit=256)
    try:
        held = []
        for _ in range(300):
            try:
                held.append(socket.create_connection((instance.host, int(instance.port)), 1))
            except OSError:
                break
        begin = time.monotonic()
        try:
            instance.connection(timeout=WAIT_SECONDS)
            instance.request("GET", "/healthz")
            waited = f"{time.monotonic() - begin:.1f} s"
        except OSError:
            waited = f"none within {time.monotonic() - begin:.0f} s"
        for connection in held:
            connection.close()
    finally:
        instance.stop()
    yield "`/healthz` beside 300 silent connections, 256 descriptors", waited


def unread(instance):
    """Answers that are not read: until when the connection is held."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((instance.host, int(instance.port)))
    path = "/docs/swagger-ui-bundle.js"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 12)
    begin = time.monotonic()

    def is_held():
        table = pathlib.Path("/proc/net/tcp").read_text()
        local = f"{connection.getsockname()[1]:04X}"
        for line in table.splitlines()[1:]:
            fields = line.split()
            if fields[2].endswith(":" + local):
                return fields[3] == "01"
        return False

    while is_held() and time.monotonic() - begin < WAIT_SECONDS:
        time.sleep(0.5)
    held = time.monotonic() - begin
    connection.close()
    bound = "still after " if held >= WAIT_SECONDS else ""
    yield "a client that does not read is held", f"{bound}{held:.0f} s"


def views(instance):
    """Calls of Redis for the page of an item that a crowd reloads."""
    instance.create("page", 6400, segments=64)
    time.sleep(1)
    idle = rate(instance, "evalsha", "eval")
    before, begin = instance.redis.calls("evalsha", "eval"), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: instance.request("GET", f"{instance.prefix}/items/page"), range(400)))
    elapsed = time.monotonic() - begin
    scripts = instance.redis.calls("evalsha", "eval") - before - idle * elapsed
    yield "scripts for one of 400 views of an item with 64 segments", f"{max(scripts, 0) / 400:.1f}"


def rest(instance):
    """36 items whose window is over, at rest."""
    for number in range(36):
        instance.admin(
            "POST",
            "/items",
            {"id": f"old-{number}", "stock": 600, "segments": 6, "closes_at": "2020-01-01T00:00:00Z"},
        )
        instance.admin("PUT", f"/items/old-{number}/state", {"state": "open"})
    time.sleep(15)
    yield "scripts at rest, 36 items whose window ended in 2020", f"{rate(instance, 'evalsha', 'eval'):.0f}/s"


def rate(instance, *commands):
    before = instance.redis.calls(*commands)
    time.sleep(3)
    return (instance.redis.calls(*commands) - before) / 3


def quantities(instance):
    """600 buyers for 600 units, and one client who asks for more than its limit."""
    wrong = []
    for attempt in range(4):
        item = f"rush-{attempt}"
        instance.create(item, 600, segments=8, limit_per_buyer=1)
        stop = threading.Event()

        def attack():
            connection, number = instance.connection(), 0
            while not stop.is_set():
                instance.order(item, "mallory", f"m-{number}", 300, connection)
                number += 1

        attacker = threading.Thread(target=attack)
        attacker.start()
        local = threading.local()

        def buy(number):
            if not hasattr(local, "connection"):
                local.connection = instance.connection()
            buyer = f"buyer-{number}"
            return instance.order(item, buyer, "k", 1, local.connection)

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = collections.Counter(status for status, _ in pool.map(buy, range(600)))
        stop.set()
        attacker.join()
        wrong.append(answers[409])
    yield "600 buyers for 600 units, wrongly `sold_out`, 4 trials", ", ".join(map(str, wrong))


def returns(instance):
    """A unit that comes back to a sold-out item with many buyers, again and again."""
    instance.create("hot", 8, segments=8)
    instance.create("calm", 100_000)
    held = [json.loads(instance.order("hot", f"first-{number}", "k")[1]) for number in range(8)]
    for number in range(200):
        words = [word for buyer in range(1000) for word in (f"b-{number}-{buyer}", 1)]
        instance.redis.send("HSET", "{hot:%d}:buyers" % (number % 8), *words)
        instance.redis.read()
    instance.order("hot", "late", "k")
    scans, slowest = instance.redis.calls("hscan"), []
    stop = threading.Event()

    def watch():
        connection, number = instance.connection(), 0
        while not stop.is_set():
            begin = time.perf_counter()
            instance.order("calm", f"calm-{number}", "k", 1, connection)
            slowest.append((time.perf_counter() - begin) * 1000)
            number += 1

    watcher = threading.Thread(target=watch)
    watcher.start()
    hot = []
    rounds = 8
    for number in range(rounds):
        order = held[number]
        buyer = f"first-{number}"
        header = {"Authorization": f"Bearer {instance.token(buyer)}", "Idempotency-Key": f"c-{number}"}
        instance.request("DELETE", f"{instance.prefix}/orders/{order['id']}", None, header)
        begin = time.perf_counter()
        instance.order("hot", f"again-{number}", "k")
        instance.order("hot", f"refused-{number}", "k")
        hot.append((time.perf_counter() - begin) * 1000)
    stop.set()
    watcher.join()
    scans = instance.redis.calls("hscan") - scans
    yield "HSCANs for each unit that comes back, 200,000 buyers", f"{scans / rounds:.0f}"
    yield "a purchase and a refusal after it", f"{statistics.median(hot):.0f} ms"
    yield "slowest order of another item meanwhile", f"{max(slowest):.0f} ms"


def tokens(instance):
    """Tokens that were not made for this shop."""
    instance.create("token", 100)
    endless = instance.token("eve", exp=None)
    yield "a token that never ends buys", str(instance.order("token", "eve", "k", token=endless)[0])


def payments(instance):
    """One payment, reported for several orders."""
    instance.create("paid", 100)
    confirmed = 0
    for buyer in ("p1", "p2"):
        order = json.loads(instance.order("paid", buyer, "k")[1])["id"]
        for body in ({"payment": "once"}, {"payment": "once", "order": order}):
            text = json.dumps(body)
            now = str(int(time.time()))
            secret = instance.settings["payment_secret"].encode()
            tag = hmac.new(secret, f"{now}.{text}".encode(), hashlib.sha256).hexdigest()
            path = f"{instance.prefix}/orders/{order}/payment"
            header = {"Stockade-Signature": f"t={now},v1={tag}"}
            status, answer = instance.request("POST", path, text, header)
            if status == 200 and json.loads(answer)["state"] == "confirmed":
                confirmed += 1
                break
    yield "orders that one payment confirms", str(confirmed)


MEASUREMENTS = [signatures, silence, unread, views, rest, quantities, returns, tokens, payments]


def measure(program, only):
    found = {}
    for measurement in MEASUREMENTS:
        if only and measurement.__name__ not in only:
            continue
        print(f"{program}: {measurement.__name__}", file=sys.stderr)
        if measurement is silence:
            found.update(measurement(program))
            continue
        instance = Instance(program)
        try:
            found.update(measurement(instance))
        finally:
            instance.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of measurements, separated by commas")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    columns = [measure(program, only) for program in options.programs]
    print("| attack |" + "".join(f" {program} |" for program in options.programs))
    print("|---|" + "--:|" * len(columns))
    for name in columns[0]:
        print(f"| {name} |" + "".join(f" {column.get(name, '-')} |" for column in columns))


if __name__ == "__main__":
    main()
