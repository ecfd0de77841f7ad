"""A model appears whole or not at all, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from acespec.models.locks import model_lock
from acespec.models.staging import require_room, staged_folder
from acespec.proto.errors import DownloadError


def test_success_is_one_rename(tmp_path: Path) -> None:
    target = tmp_path / "models" / "m"
    for content in ("first", "second"):
        with staged_folder(target) as stage:
            (stage / "file").write_text(content)
            (stage / content).touch()
        assert (target / "file").read_text() == content
    assert sorted(p.name for p in target.iterdir()) == ["file", "second"]
    assert [p.name for p in target.parent.iterdir()] == ["m"]


@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt, SystemExit])
def test_failure_leaves_nothing_and_keeps_the_old(tmp_path: Path, fault: type[BaseException]) -> None:
    target = tmp_path / "m"
    with staged_folder(target) as stage:
        (stage / "old").touch()

    def fail() -> None:
        with staged_folder(target) as stage:
            (stage / "new").touch()
            raise fault

    with pytest.raises(fault):
        fail()
    assert [p.name for p in tmp_path.rglob("*")] == ["m", "old"]


def test_leftovers_of_a_killed_process_go_with_the_next_run(tmp_path: Path) -> None:
    leftover = tmp_path / ".partial-m-abc"
    leftover.mkdir()
    (leftover / "half").touch()
    (tmp_path / ".partial-other-abc").mkdir()
    with staged_folder(tmp_path / "m"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == [".partial-other-abc", "m"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_a_disk_without_room_is_one_clear_line(tmp_path: Path) -> None:
    """A file size limit makes the operating system refuse the write, as a full disk does."""
    script = f"""
        import resource, signal
        from pathlib import Path
        from acespec.models.staging import staged_folder
        from acespec.proto.errors import DownloadError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with staged_folder(Path({str(tmp_path)!r}) / "m") as stage:
                (stage / "weights").write_bytes(bytes(10_000))
        except DownloadError as fault:
            print(fault)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no room on the disk that holds")
    assert done.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], check=True)
    try:
        with pytest.raises(DownloadError, match="No space left on device"), staged_folder(mount / "m") as stage:
            (stage / "weights").write_bytes(bytes(1 << 20))
        assert list(mount.iterdir()) == []
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_room_is_asked_for_before_the_work(tmp_path: Path) -> None:
    require_room(tmp_path / "not" / "yet", 1)
    with pytest.raises(DownloadError, match="are needed on the disk"):
        require_room(tmp_path / "not" / "yet", 1 << 60)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), staged_folder(tmp_path / "file" / "m"):
        pass


HOLDER = """
import sys, time
from acespec.models.locks import model_lock
with model_lock("m"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.usefixtures("cache")
def test_a_second_process_waits_and_a_dead_one_frees_the_lock() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert holder.stdout is not None
        with holder.stdout as lines:
            assert lines.readline() == "held\n"
            from filelock import FileLock, Timeout

            from acespec.models.paths import locks_root

            with pytest.raises(Timeout), FileLock(locks_root() / "m.lock", timeout=0.2):
                pass
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        before = time.monotonic()
        with model_lock("m"):
            assert time.monotonic() - before < 5
    finally:
        holder.kill()
        holder.wait()
