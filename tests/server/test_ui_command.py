"""`backtrail ui` as a process: it says where it is, answers, and stops without a fuss."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

import backtrail
from backtrail.cli.commands.ui import _listen


def test_it_tells_its_address_answers_and_stops_while_a_page_is_open(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "backtrail.db") as store:
        store.thread("talk").save({"n": 1})
    command = [sys.executable, "-m", "backtrail.cli", "ui", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())["data"]
            assert told["url"] == f"http://127.0.0.1:{told['port']}/#token={told['token']}"
            headers = {"authorization": f"Bearer {told['token']}"}
            base = f"http://127.0.0.1:{told['port']}/api/v1"
            with httpx.Client(headers=headers, trust_env=False, timeout=60) as client:
                assert client.get(f"{base}/store").json()["name"] == "backtrail.db"
                with client.stream("GET", f"{base}/events") as stream:
                    assert next(stream.iter_lines()) == "event: hello"
                    process.send_signal(signal.SIGINT)
                    _, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode, complaints) == (0, "")


def test_an_address_answers_from_the_moment_it_is_told() -> None:
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as early:
        early.sendall(b"GET / HTTP/1.0\r\n\r\n")


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "backtrail.db") as store:
        store.thread("talk").save({})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "backtrail.cli", "ui", "--port", str(taken.getsockname()[1]), "--no-browser"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: cannot listen on 127.0.0.1:")
