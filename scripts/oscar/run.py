"""Three variants of one shop under the same rush: `make oscar`. See scripts/oscar.sh."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from servers import Postgres, Processor, Shop, Stockade, free_port, manage, settle
from trials import (
    CHARGE_SECONDS,
    UNITS,
    Count,
    Scenario,
    Trial,
    audits,
    declined,
    double_clicks,
    kill_service,
    kill_worker,
    mixed,
    show,
    staff_cancels,
)

#: Rushes of a variant, and further ones in place of those in which the crowd did not come together.
ROUNDS, SPARE_ROUNDS = 3, 5
POINTS = ["held", "charged", "placed"]
FAULTS = [
    "declined",
    "double",
    "mixed",
    "cancelled",
    "kill-service",
    *(f"kill-{point}" for point in POINTS),
]


def titles(rounds: int) -> list[str]:
    """The goods of the rushes: each has its own."""
    return [f"run-{number}" for number in range(1, rounds + 1)]


class Bench:
    """The servers that all variants share."""

    def __init__(self, out: Path, rounds: int, faults: bool, stack: ExitStack) -> None:
        self.out, self.rounds, self.faults, self.stack = out, rounds, faults, stack
        self.rushes: dict[str, list[dict[str, Any]]] = {}
        self.hot = titles(rounds + SPARE_ROUNDS) + (FAULTS if faults else [])
        self.postgres = Postgres()
        stack.callback(self.postgres.stop)
        self.processor = Processor(out)
        stack.callback(self.processor.stop)
        self.common = {
            "SHOP_DEBUG": "off",
            "SHOP_DATA": str(out / "data"),
            "SHOP_EMAIL": "django.core.mail.backends.dummy.EmailBackend",
            "SHOP_PROCESSOR": self.processor.url,
            "DJANGO_SETTINGS_MODULE": "trial.settings_stockade",
            # The variants without Stockade need no secret, and Django checks that there is one.
            **{
                f"STOCKADE_{name}": "none"
                for name in ("JWT_SECRET", "PAYMENT_SECRET", "ADMIN_TOKEN")
            },
        }
        self.postgres.copy("shop")
        environment = self.environment("shop")
        tables = environment | {"DJANGO_SETTINGS_MODULE": "trial.settings_tables"}
        manage(tables, out, "migrate", "--run-syncdb", "--verbosity", "0")
        goods = ["load_shop", "--units", str(UNITS), "--hot", *self.hot, "--normal", "socks"]
        manage(environment, out, *goods)

    def environment(self, database: str, **more: str) -> dict[str, str]:
        # The basket 1 of each variant is another one, also for the card processor.
        own = {
            "SHOP_POSTGRES": f"127.0.0.1:{self.postgres.port}:{database}",
            "SHOP_KEY_PREFIX": database,
        }
        return self.common | own | more

    def trial(self, variant: str) -> list[Count]:
        """A variant that knows nothing of Stockade."""
        self.postgres.copy(variant, "shop")
        settings = f"trial.settings_{variant}"
        environment = self.environment(variant, DJANGO_SETTINGS_MODULE=settings)
        with ExitStack() as stack:
            shop = Shop(self.out, variant, environment)
            stack.callback(shop.stop)
            trial = Trial(self.postgres.url(variant), shop, self.processor)
            counts = self.faulty_rounds(trial)
            self.rushes[variant] = trial.rushes
            return counts

    def faulty_rounds(self, trial: Trial) -> list[Count]:
        """Rushes of a variant that must fail.

        One shows nothing if fewer cards than there are units were charged at the same time: the
        machine was busy, and the guests came one after the other. Another one takes its place.
        """
        counts = list[Count]()
        for title in titles(self.rounds + SPARE_ROUNDS):
            count = shown(title, trial.rush(title))
            if count.charged > UNITS:
                counts.append(count)
            else:
                trial.rushes.pop()
                print(f"  {title}: no crowd came together, so another rush follows", flush=True)
            if len(counts) == self.rounds:
                break
        return counts


def shown(name: str, count: Count) -> Count:
    show(name, count)
    return count


class Behind:
    """The variant behind Stockade, with its gunicorn started anew for each group of trials."""

    def __init__(self, bench: Bench, program: str, stack: ExitStack) -> None:
        self.bench, self.failures = bench, list[str]()
        folder = bench.out / "data"
        self.stockade = Stockade(program, folder)
        stack.callback(self.stockade.stop)
        bench.postgres.copy("stockade", "shop")
        self.environment = bench.environment("stockade", **self.stockade.settings)
        manage(self.environment, bench.out, "stockade_sync")
        # One address for all starts of the shop, so there is one webhook.
        self.port = free_port()
        address = f"http://127.0.0.1:{self.port}/stockade/webhook/"
        manage(self.environment, bench.out, "stockade_webhook", address)
        stack.callback(settle(self.environment, bench.out).stop)

    def with_shop(self, name: str, *options: str, **environment: str) -> tuple[ExitStack, Trial]:
        stack = ExitStack()
        all_of_it = self.environment | environment
        shop = Shop(self.bench.out, name, all_of_it, *options, port=self.port)
        stack.callback(shop.stop)
        url = self.bench.postgres.url("stockade")
        return stack, Trial(url, shop, self.bench.processor, self.stockade)

    def runs(self) -> list[Count]:
        runs = titles(self.bench.rounds)
        counts, rushes = list[Count](), self.bench.rushes.setdefault("stockade", [])

        def rush(trial: Trial, titles: list[str]) -> None:
            counts.extend(shown(title, trial.rush(title)) for title in titles)
            rushes.extend(trial.rushes)

        *first, last = runs
        if first or self.bench.faults:
            stack, trial = self.with_shop("stockade")
            with stack:
                rush(trial, first)
                if self.bench.faults:
                    self.ordinary(trial)
        # The workers of this one are forks of a process that has loaded the shop.
        stack, trial = self.with_shop("preload", "--preload")
        with stack:
            rush(trial, [last])
            if not self.bench.faults:
                self.audit(trial)
        return counts

    def ordinary(self, trial: Trial) -> None:
        for scenario in [
            Scenario("declined", 6, declined),
            Scenario("double", 6, double_clicks),
            Scenario("mixed", UNITS, mixed),
            Scenario("cancelled", 4, staff_cancels),
        ]:
            self.scenario(trial, scenario)

    def audit(self, trial: Trial) -> None:
        self.failures += audits(trial, self.bench.hot)

    def kills(self) -> None:
        points = self.bench.out / "kills"
        points.mkdir()
        environment = {"TRIAL_KILLS": str(points), "SHOP_LEASE_SECONDS": "5"}
        stack, trial = self.with_shop("kills", "--preload", **environment)
        with stack:
            for point in POINTS:
                self.scenario(trial, Scenario(f"kill-{point}", 8, kill_worker(point, points)))
            self.scenario(trial, Scenario("kill-service", UNITS, kill_service))
            self.audit(trial)

    def scenario(self, trial: Trial, scenario: Scenario) -> None:
        before = len(trial.processor.charges())
        trial.processor.answer_after(CHARGE_SECONDS)
        scenario.run(trial)
        count = shown(scenario.name, trial.count(scenario.name, before))
        if not count.agrees() or count.orders != scenario.orders:
            self.failures.append(f"{scenario.name}: expected {scenario.orders} orders: {count}")


def verdict(counts: dict[str, list[Count]], rounds: int) -> list[str]:
    """What is not as it must be: the first two variants have to fail, or the rush shows nothing."""
    failures = []
    for variant, runs in counts.items():
        if len(runs) != rounds:
            failures.append(f"{variant}: in {len(runs)} of {rounds} rushes a crowd came together")
    for count in counts.get("plain", []):
        if count.orders <= UNITS:
            failures.append(f"plain did not oversell: {count}")
    for count in counts.get("conditional", []):
        if count.orders != UNITS or count.charged <= UNITS:
            failures.append(f"conditional sold or charged otherwise: {count}")
    for count in counts.get("stockade", []):
        if not count.agrees() or count.orders != UNITS or count.returned:
            failures.append(f"stockade: {count}")
    return failures


def summary(counts: dict[str, list[Count]]) -> dict[str, dict[str, list[int]]]:
    names = ("orders", "charged", "confirmed", "held")
    return {
        variant: {name: [getattr(count, name) for count in runs] for name in names}
        for variant, runs in counts.items()
    }


def clear(out: Path) -> None:
    """Leaves nothing of an earlier run."""
    for old in ("data", "kills"):
        shutil.rmtree(out / old, ignore_errors=True)
    (out / "data").mkdir(parents=True)
    for log in out.glob("*.log"):
        log.unlink()
    for results in ("summary.json", "rushes.json"):
        (out / results).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="plain,conditional,stockade")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rushes of each variant")
    parser.add_argument("--faults", choices=["on", "off"], default="on")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    out, only = options.out.resolve(), options.only.split(",")
    clear(out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    began, counts, failures = time.monotonic(), dict[str, list[Count]](), list[str]()
    with ExitStack() as stack:
        bench = Bench(out, options.rounds, options.faults == "on", stack)
        for variant in ("plain", "conditional"):
            if variant in only:
                print(f"{variant} (after {time.monotonic() - began:.0f} s)", flush=True)
                counts[variant] = bench.trial(variant)
        if "stockade" in only:
            print(f"stockade (after {time.monotonic() - began:.0f} s)", flush=True)
            behind = Behind(bench, os.environ["STOCKADE_BIN"], stack)
            counts["stockade"] = behind.runs()
            if bench.faults:
                print(f"kills (after {time.monotonic() - began:.0f} s)", flush=True)
                behind.kills()
            failures += behind.failures
    failures += verdict(counts, options.rounds)
    (out / "rushes.json").write_text(json.dumps(bench.rushes) + "\n")
    (out / "summary.json").write_text(json.dumps(summary(counts), indent=1) + "\n")
    print(json.dumps(summary(counts)))
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    print(f"as expected, in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
