"""The file itself: who may open it, where it may lie, and which settings are in force."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from detent import stores
from detent.errors import (
    BadUrl,
    StoreClosed,
    StoreCorrupt,
    StoreOpen,
    StoreRefused,
    UnsupportedStore,
)
from detent.stores.sqlite import place
from detent.stores.sqlite.connection import need_version, open_reader, open_writer
from tests.sqlite.processes import url_of


def opened(path: Path) -> None:
    async def open_and_close() -> None:
        async with stores.open(url_of(path)):
            pass

    asyncio.run(open_and_close())


def modes_in(folder: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_only_the_owner_may_open_what_we_make(tmp_path: Path) -> None:
    async def modes() -> set[int]:
        async with stores.open(url_of(tmp_path / "detent.db")) as store:
            await store.beat([], now=0)
            return modes_in(tmp_path)

    before = os.umask(0)
    try:
        assert asyncio.run(modes()) == {0o600}
    finally:
        os.umask(before)


def test_who_opens_a_store_waits_for_nobodys_open_transaction(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("BEGIN IMMEDIATE")
        opened(path)  # it raised StoreBusy after five seconds
        shop.execute("ROLLBACK")


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    path.touch(0o644)
    path.chmod(0o644)
    with pytest.raises(UnsupportedStore, match="chmod 600"):
        opened(path)


def test_a_folder_that_everybody_may_write_to_is_refused_without_the_sticky_bit(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UnsupportedStore, match="Everybody may write"):
        opened(folder / "detent.db")
    assert list(folder.iterdir()) == []
    folder.chmod(0o1777)
    opened(folder / "detent.db")


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch(0o600)
    (tmp_path / "detent.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(UnsupportedStore, match="link"):
        opened(tmp_path / "detent.db")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadUrl, match="There is no folder"):
        opened(tmp_path / "missing" / "detent.db")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where not even root may write")
def test_a_folder_where_nobody_may_write_is_a_coded_refusal() -> None:
    with pytest.raises(StoreRefused, match="This user may not write to /sys/") as refused:
        opened(Path("/sys/detent.db"))
    assert refused.value.code == "store_refused"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadUrl, match="name a file in it"):
        opened(tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    path.write_text("This is a letter, not a database. " * 100)
    path.chmod(0o600)
    with pytest.raises(StoreCorrupt, match="check that the address names it"):
        opened(path)


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://", "sqlite://host/a.db", "sqlite::memory:", "sqlite:a.db?mode=ro"]
)
def test_an_address_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        stores.open(url)


def test_addresses_are_absolute_or_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place.path_of("sqlite:///var/a.db") == Path("/var/a.db")
    assert place.path_of("sqlite:data/a.db") == tmp_path / "data" / "a.db"


def test_the_settings_are_in_force_on_every_connection(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    opened(path)
    writer, reader = open_writer(path), open_reader(path)
    asked = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    found = [writer.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
    assert found == ["wal", 2, 1, 5_000]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM detent_jobs")
    writer.close()
    reader.close()


def test_a_database_whose_settings_do_not_hold_is_refused(tmp_path: Path) -> None:
    # A database that is being written in another journal mode cannot be switched to WAL.
    path = tmp_path / "detent.db"
    path.touch(0o600)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE mine (a)")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        open_writer(path, busy_ms=1)
    other.close()


def test_an_old_sqlite_is_refused() -> None:
    need_version((3, 35, 0))
    with pytest.raises(UnsupportedStore, match=r"3\.34\.1"):
        need_version((3, 34, 1))


def test_a_store_must_be_opened_and_only_once(tmp_path: Path) -> None:
    async def misuse() -> None:
        store = stores.open(url_of(tmp_path / "detent.db"))
        with pytest.raises(StoreClosed):
            await store.counts()
        async with store:
            with pytest.raises(StoreOpen, match="open already"):
                await store.__aenter__()
        with pytest.raises(StoreClosed):
            await store.step([], now=0)

    asyncio.run(misuse())


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/ada ext4 rw 0 0
//nas/all /mnt/my\\040share cifs rw 0 0
host /shared 9p rw 0 0
ada@far: /mnt/far fuse.sshfs rw 0 0
/dev/sdb1 /mnt/stick fuseblk rw 0 0
tmpfs /mnt/twice tmpfs rw 0 0
server:/x /mnt/twice nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/eve/data", "nfs4"),
        ("/home/ada/data", "ext4"),
        ("/home/adam", "nfs4"),
        ("/mnt/my share/a", "cifs"),
        ("/shared", "9p"),
        ("/mnt/far/b", "fuse.sshfs"),
        ("/mnt/stick", "fuseblk"),
        ("/mnt/twice", "nfs"),
    ],
)
def test_the_mount_above_a_folder_says_its_file_system(folder: str, kind: str) -> None:
    assert place.file_system(Path(folder), place.linux_mounts(MOUNTS)) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs"])
def test_network_file_systems_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedStore, match="network file system") as refused:
        place.need_local(Path("/data"), iter([("/", "ext4"), ("/data", kind)]))
    assert refused.value.fields["file_system"] == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "apfs", "tmpfs", "overlay", "fuseblk"])
def test_local_file_systems_are_taken(kind: str) -> None:
    place.need_local(Path("/data"), iter([("/data", kind)]))


def test_what_mount_prints_on_a_mac_is_understood() -> None:
    text = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//ada@nas/my files on /Volumes/my files (smbfs, nodev, nosuid, mounted by ada)\n"
    )
    assert list(place.mac_mounts(text)) == [("/", "apfs"), ("/Volumes/my files", "smbfs")]
