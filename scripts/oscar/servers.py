"""The servers of a trial. Each is ended by its own process, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 120


def eventually(what: str, found: Callable[[], Any], seconds: float = READY_SECONDS) -> Any:
    """Waits until `found` returns something, and returns that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.05)
    raise SystemExit(f"waited for {seconds:g} s in vain: {what}")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Process:
    """A server with a log, in a group of its own."""

    def __init__(self, name: str, log: Path, command: list[str], **options: Any) -> None:
        self.name = name
        with log.open("ab") as file:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                **options,
            )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


class Postgres:
    """A private PostgreSQL. It refuses to run as root, which runs it as the user `postgres`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stockade-oscar."))
        self.port = free_port()
        self.account: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        programs = _postgres_programs()
        data = self.folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8"]
            + ["--locale", "C", "--no-sync"],
            check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **self.account,
        )  # fmt: skip
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "postgres.log"
        self.process = Process("postgres", log, command, cwd=self.folder, **self.account)
        eventually("PostgreSQL", self._is_ready)

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, name: str) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{name}"

    def copy(self, name: str, template: str = "template0") -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as sql:
            sql.execute(f"CREATE DATABASE {name} TEMPLATE {template}")

    def stop(self) -> None:
        self.process.stop(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)


def _postgres_programs() -> Path:
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    program = found[-1] if found else shutil.which("initdb")
    if program is None:
        raise SystemExit("no PostgreSQL found: scripts/setup.sh test installs it")
    return Path(program).parent


class Stockade:
    """`stockade up` in a folder, with a private Redis and SQLite."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder, self.port = program, folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()
        run = tomllib.loads((folder / "run.toml").read_text())
        self.settings = {
            "STOCKADE_URL": self.url,
            "STOCKADE_JWT_SECRET": run["jwt_secret"],
            "STOCKADE_PAYMENT_SECRET": run["payment_secret"],
            "STOCKADE_ADMIN_TOKEN": run["admin_token"],
        }

    def start(self) -> None:
        log = self.folder / "up.log"
        log.unlink(missing_ok=True)
        command = [
            self.program,
            "up",
            "--dir",
            str(self.folder),
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        self.process = Process("stockade", log, command)
        eventually("Stockade", lambda: "\nready " in "\n" + log.read_text())

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()


class Processor:
    """The card processor of examples/oscar."""

    def __init__(self, out: Path) -> None:
        port = free_port()
        program = str(ROOT / "examples/oscar/processor.py")
        command = [sys.executable, program, "--listen", f"127.0.0.1:{port}"]
        self.process = Process("processor", out / "processor.log", command)
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        eventually("the card processor", lambda: answers(port))

    def answer_after(self, seconds: float, crowd: int = 0) -> None:
        """Also before that, once so many charges have waited."""
        body = json.dumps({"seconds": seconds, "crowd": crowd}).encode()
        urlopen(f"{self.url}/delay", body, timeout=READY_SECONDS).close()

    def charges(self) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/charges", timeout=READY_SECONDS) as response:
            found: list[dict[str, Any]] = json.load(response)
            return found

    def stop(self) -> None:
        self.process.stop()


class Shop:
    """Gunicorn with 4 workers of 6 threads."""

    def __init__(
        self, out: Path, name: str, environment: dict[str, str], *options: str, port: int = 0
    ) -> None:
        self.port = port or free_port()
        self.out, self.environment = out, os.environ | environment
        # The master loads the application with --preload, and then its workers are forks of that.
        command = [sys.executable, "-m", "gunicorn", "--workers", "4", "--threads", "6"]
        # A worker that accepted more than its threads serve would leave the other workers idle.
        command += [
            "--worker-connections",
            "6",
            "--keep-alive",
            "0",
            "--no-control-socket",
            "--bind",
            f"127.0.0.1:{self.port}",
            *options,
            "oscarshop.wsgi",
        ]
        self.process = Process(name, out / f"{name}.log", command, env=self.environment)
        eventually(f"the shop {name}", lambda: answers(self.port))
        # The first page puts a picture into the media folder, and two at once would collide.
        urlopen(f"http://127.0.0.1:{self.port}/catalogue/", timeout=READY_SECONDS).close()

    def manage(self, *arguments: str) -> None:
        manage(self.environment, self.out, *arguments)

    def stop(self) -> None:
        self.process.stop()


def manage(environment: dict[str, str], out: Path, *arguments: str) -> None:
    command = [sys.executable, str(ROOT / "examples/oscar/manage.py"), *arguments]
    with (out / "manage.log").open("ab") as log:
        subprocess.run(command, env=os.environ | environment, stdout=log, stderr=log, check=True)


def settle(environment: dict[str, str], out: Path) -> Process:
    """The job that goes on with open checkouts."""
    program = str(ROOT / "examples/oscar/manage.py")
    command = [sys.executable, program, "stockade_settle", "--loop", "1"]
    return Process("settle", out / "settle.log", command, env=os.environ | environment)
