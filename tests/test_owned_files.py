"""Files of ours are opened without following links and only if regular, created exclusively, replaced as a whole."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backtrail import owned_files
from backtrail.errors import UnsafePath


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    old = os.umask(request.param)
    yield
    os.umask(old)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    return path


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("elsewhere"))


def fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, victim: Path) -> None:
    path.mkdir()


def unix_socket(path: Path, victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


OBSTACLES = [link, dangling_link, fifo, directory, unix_socket]


@pytest.mark.parametrize("plant", OBSTACLES)
@pytest.mark.parametrize(
    "touch",
    [
        owned_files.open_regular,
        lambda path: owned_files.open_regular(path, os.O_RDWR),
        lambda path: owned_files.open_or_create(path, os.O_WRONLY | os.O_APPEND),
        lambda path: owned_files.open_or_create(path, os.O_RDWR, any_links=True),
        owned_files.read_bytes,
        lambda path: owned_files.replace_atomically(path, [b"new"]),
        owned_files.require_regular,
    ],
    ids=["read", "write", "append", "lock", "read_bytes", "replace", "check"],
)
def test_only_a_regular_file_is_touched(
    tmp_path: Path, victim: Path, plant: Callable[[Path, Path], None], touch: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    plant(path, victim)
    before = path.lstat()
    with pytest.raises(UnsafePath, match="file should be a file of backtrail's"):
        touch(path)
    assert path.lstat().st_ino == before.st_ino
    assert victim.read_bytes() == b"precious"
    assert sorted(child.name for child in tmp_path.iterdir()) == ["file", "victim"]


@pytest.mark.parametrize("plant", OBSTACLES)
def test_a_file_is_created_only_where_there_is_nothing(
    tmp_path: Path, victim: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(tmp_path / "file", victim)
    with pytest.raises(FileExistsError):
        owned_files.create_exclusive(tmp_path / "file")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_with_a_second_name_is_read_and_replaced_but_not_written_to(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "file"
    path.hardlink_to(victim)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
        with pytest.raises(UnsafePath, match="2 names"):
            owned_files.open_or_create(path, flags)
    assert owned_files.read_bytes(path) == b"precious"
    os.close(owned_files.open_or_create(path, os.O_RDWR, any_links=True))
    owned_files.replace_atomically(path, [b"new"])
    assert (victim.read_bytes(), path.read_bytes()) == (b"precious", b"new")


def test_what_is_made_belongs_to_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: None) -> None:
    tmp_path.chmod(0o700)
    os.close(owned_files.create_exclusive(tmp_path / "new"))
    os.close(owned_files.open_or_create(tmp_path / "appended", os.O_WRONLY | os.O_APPEND))
    owned_files.replace_atomically(tmp_path / "replaced", [b"a", b"b"])
    owned_files.make_directories(tmp_path / "some" / "deep" / "directory")
    for path in tmp_path.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_replacement_that_fails_leaves_the_old_contents_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "file"
    owned_files.replace_atomically(path, [b"old"])

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        owned_files.replace_atomically(path, parts())
    assert [child.name for child in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_only_old_temporaries_of_ours_are_removed(tmp_path: Path) -> None:
    names = [
        ".backtrail-0123456789abcdef.new",
        ".backtrail-0123456789abcdef.new-journal",
        ".backtrail-fedcba9876543210.new",
        ".backtrail-short.new",
        "notes.new",
    ]
    for name in names:
        (tmp_path / name).touch()
        old = time.time() - 2 * owned_files.ABANDONED
        if not name.startswith(".backtrail-fe"):
            os.utime(tmp_path / name, (old, old))
    owned_files.remove_abandoned(tmp_path)
    assert {child.name for child in tmp_path.iterdir()} == set(names[2:])


def test_a_directory_is_not_made_through_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="leads to no directory"):
        owned_files.make_directories(tmp_path / "link" / "store")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        owned_files.make_directories(tmp_path / "file")
    assert sorted(child.name for child in tmp_path.iterdir()) == ["file", "link"]
