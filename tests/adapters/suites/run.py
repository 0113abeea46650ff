"""Runs the frameworks' own tests on backtrail's stores: `make test-suites`.

A suite is part of a framework's source distribution, which pip downloads in the version that is installed here, or of
its repository, from which one commit is downloaded. A pytest plugin beside this file (`bind_<framework>.py`) puts
backtrail's class in the place of the framework's own store; nothing else in the tests is changed. Tests that cannot
apply are named in `suites.py`, each with its reason, and are left out; all others must pass, on every engine, with a
`Store` and with an `AsyncStore`. A file has tests that need no store as well: how many opened one is counted apart.
Some measure times, and fail where the machine is busy: the tests that failed are run a second time, and named.

    python tests/adapters/suites/run.py                             # everything
    python tests/adapters/suites/run.py claude --store sqlite-async # one suite on one store
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from suite import APIS, Suite
from suites import SUITES

from backtrail.testing.servers import PostgresServer, RedisServer, private_directory

HERE = Path(__file__).parent
CACHE = Path.cwd() / ".venv-suites" / "sources"  # beside the packages that they belong to
STORES = [f"{engine}-{api}" for engine in ("memory", "sqlite", "jsonl", "redis", "postgres") for api in APIS]


def download(suite: Suite) -> Path:
    """The directory with a framework's tests."""
    release = f"{suite.package}-{version(suite.package)}".replace("_", "-")
    target = CACHE / (suite.commit or release)
    if not target.exists():
        with tempfile.TemporaryDirectory() as directory:
            if suite.commit:
                archive = Path(directory, "archive.tar.gz")
                urllib.request.urlretrieve(f"{suite.repository}/archive/{suite.commit}.tar.gz", archive)
            else:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
                requirement = f"{suite.package}=={version(suite.package)}"
                subprocess.run([*pip, "--dest", directory, requirement], check=True)
                (archive,) = Path(directory).glob("*.tar.gz")
            unpacked = Path(directory, "unpacked")
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            (top,) = unpacked.iterdir()
            CACHE.mkdir(parents=True, exist_ok=True)
            top.rename(target)
    return target


@contextlib.contextmanager
def servers(stores: list[str]) -> Iterator[dict[str, str]]:
    """The URLs of the servers that these stores need."""
    with private_directory() as directory, contextlib.ExitStack() as stack:
        urls: dict[str, str] = {}
        if any(store.startswith("redis") for store in stores):
            redis = RedisServer(directory / "redis", "--appendonly", "no")
            redis.start()
            stack.callback(redis.kill)
            urls["redis"] = redis.url
        if any(store.startswith("postgres") for store in stores):
            postgres = PostgresServer(directory / "postgres", "-c", "fsync=off", "-c", "max_connections=500")
            postgres.start()
            stack.callback(postgres.kill)
            urls["postgres"] = postgres.url
        yield urls


def run(suite: Suite, source: Path, store: str, url: str) -> bool:
    """Run a suite on a store and print its counts; False if a test failed twice."""
    with tempfile.TemporaryDirectory() as directory:
        report, opened, failures = (
            Path(directory, name) for name in ("report.xml", "uses", "cache/v/cache/lastfailed")
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", suite.plugin, "-o", f"cache_dir={directory}/cache"]
        command += ["--no-header", "--tb=short", "--timeout=300", *suite.options, *suite.tests]
        command += [f"--deselect={test}" for test in suite.cannot_apply]
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "BACKTRAIL_SUITE_STORE": store,
            "BACKTRAIL_SUITE_URL": url,
            "BACKTRAIL_SUITE_USES": directory,
        }

        def pytest(*more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*command, *more], cwd=source, env=environment, capture_output=True, text=True, check=False
            )

        ended = pytest(f"--junitxml={report}")
        if not opened.exists():  # no test has run
            print(ended.stdout, ended.stderr)
            return False
        uses = int(opened.read_text(encoding="utf-8"))
        counts = ET.parse(report).getroot().find("testsuite").attrib
        failed = list(json.loads(failures.read_text(encoding="utf-8"))) if failures.exists() else []
        again = pytest("--last-failed") if failed else ended
    passed = int(counts["tests"]) - sum(int(counts[name]) for name in ("failures", "errors", "skipped"))
    others = ", ".join(f"{counts[name]} {name}" for name in ("failures", "errors", "skipped"))
    print(
        f"{suite.name} ({suite.package} {version(suite.package)}) on {store}: {passed} passed, {uses} of them on a "
        f"store of backtrail's; {others}; {float(counts['time']):.0f} s",
        flush=True,
    )
    if failed:
        print("  failed, and run again:", *failed, flush=True)
    if again.returncode:
        print(again.stdout)
    return again.returncode == 0


def main() -> int:
    known = {suite.name: suite for suite in SUITES}
    parser = argparse.ArgumentParser(description="Run the frameworks' own tests on backtrail's stores.")
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(known)}; all if none is named")
    parser.add_argument("--store", action="append", choices=STORES, help="an engine and an API; may be repeated")
    parser.add_argument("--cannot-apply", action="store_true", help="only list the tests that are left out, and why")
    arguments = parser.parse_args()
    chosen = [known[name] for name in arguments.suites or known]
    if arguments.cannot_apply:
        for suite in chosen:
            for test, reason in suite.cannot_apply.items():
                print(f"{suite.name}: {test}: {reason}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # by way of the `with`, which ends the servers
    good = True
    stores = arguments.store or STORES
    with servers(stores) as urls:
        for suite in chosen:
            source = download(suite)
            for store in stores:
                if store in suite.stores:
                    good &= run(suite, source, store, urls.get(store.partition("-")[0], ""))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
