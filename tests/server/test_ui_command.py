"""`backtrail ui` as a process: prints its address, serves, and stops without an error."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

import backtrail
from backtrail.cli.commands.ui import _listen
from backtrail.cli.commands.ui import command as ui


def test_it_prints_its_address_serves_and_stops_while_a_page_is_open(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "backtrail.db") as store:
        store.thread("talk").save({"n": 1})
    command = [sys.executable, "-m", "backtrail.cli", "ui", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            printed = json.loads(process.stdout.readline())["data"]
            assert printed["url"].startswith(f"http://127.0.0.1:{printed['port']}/#code=")
            assert printed["token"] not in printed["url"]
            headers = {"authorization": f"Bearer {printed['token']}"}
            base = f"http://127.0.0.1:{printed['port']}/api/v1"
            with httpx.Client(headers=headers, trust_env=False, timeout=60) as client:
                assert client.get(f"{base}/store").json()["name"] == "backtrail.db"
                with client.stream("GET", f"{base}/events") as stream:
                    assert next(stream.iter_lines()) == "event: hello"
                    process.send_signal(signal.SIGINT)
                    _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (process.returncode, errors) == (0, "")


def test_the_address_accepts_connections_as_soon_as_it_is_printed() -> None:
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as early:
        early.sendall(b"GET / HTTP/1.0\r\n\r\n")


def test_a_port_in_use_is_an_error_of_one_line(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "backtrail.db") as store:
        store.thread("talk").save({})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "backtrail.cli", "ui", "--port", str(taken.getsockname()[1]), "--no-browser"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: cannot listen on 127.0.0.1:")


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("10.0.0.1", "short")])
def test_another_address_needs_a_token_of_16_characters(host: str, token: str | None) -> None:
    ended = CliRunner().invoke(ui, ["--host", host], env={"BACKTRAIL_UI_TOKEN": token})
    assert ended.exit_code == 2
    assert "16 characters" in ended.output
