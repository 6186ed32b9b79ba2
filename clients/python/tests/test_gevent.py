"""Greenlets that share a client, also across a fork: as the workers of gunicorn's class `gevent` do.

gevent replaces parts of the standard library for its whole process, so the greenlets have one of
their own. Where this Python has no gevent, it comes from PyPI.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import unittest

from tests.test_packaging import run
from tests.test_retries import HELD, Server

GREENLETS = 8
#: What pip gets for a Python that has no gevent.
GEVENT = ["gevent==25.9.1", "greenlet==3.5.6", "zope.event==6.2", "zope.interface==8.7"]
TIMEOUT = float(os.environ.get("STOCKADE_TEST_TIMEOUT", 120))

#: Before the fork and after it, all of them place an order at once: each by a client, or by a batcher.
PLACE = """
from gevent import monkey

monkey.patch_all()
import os, sys

import gevent
from stockade import Client, NewOrder, OrderBatcher, RetryPolicy

count, timeout = int(sys.argv[2]), float(sys.argv[3])
client = Client(sys.argv[1], retry=RetryPolicy(deadline=timeout), attempt_timeout=timeout)
batcher = OrderBatcher(client.admin("token"), "vase")

def at_once(place):
    jobs = [gevent.spawn(place, f"key-{number}") for number in range(count)]
    gevent.joinall(jobs, raise_error=True)
    assert all(job.value.order.state == "held" for job in jobs)

def all_of_it():
    at_once(lambda key: client.buyer("token").place(NewOrder("vase", 1, key)))
    at_once(lambda key: batcher.order("ann", 1, key))

all_of_it()
if (child := os.fork()) == 0:
    all_of_it()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Greenlets(unittest.TestCase):
    def setUp(self) -> None:
        self.environment = dict(os.environ)
        if importlib.util.find_spec("gevent"):
            return
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        installed = run(*install, "--target", folder.name, *GEVENT)
        if installed.returncode:
            lines = installed.stderr.strip().splitlines() or ["pip failed"]
            why = f"there is no gevent, and pip gets none: {lines[-1]}"
            print(f"\nSKIPPED: greenlets that share a client for Python: {why}")
            self.skipTest(why)
        paths = [folder.name, *filter(None, [self.environment.get("PYTHONPATH")])]
        self.environment["PYTHONPATH"] = os.pathsep.join(paths)

    def test_they_wait_beside_each_other_before_a_fork_and_after_it(self) -> None:
        # The answer to an order waits for the requests of all: a greenlet that blocked the others
        # would wait for ever. A batcher may send their orders together.
        all_of_them = threading.Barrier(GREENLETS, timeout=TIMEOUT)

        def answer(body):
            if orders := body.get("orders"):
                return 200, {"results": [{**HELD, "status": 201} for _ in orders]}
            all_of_them.wait()
            return 201, HELD

        with Server(answer) as server:
            arguments = [server.url, str(GREENLETS), str(TIMEOUT)]
            command = [sys.executable, "-c", PLACE, *arguments]
            done = subprocess.run(command, env=self.environment, timeout=4 * TIMEOUT)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
