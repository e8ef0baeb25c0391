"""The durable store on SQLite."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from beeyard.core.errors import DiskError
from beeyard.runtime.host import Record
from beeyard.runtime.sqlite_database import SqliteDatabase, _decode
from tests.support.conformance import a_record, check_database


async def test_sqlite_database_conforms(tmp_path: Path) -> None:
    """SQLite keeps what `Database` promises."""
    await check_database(lambda: SqliteDatabase.open(str(tmp_path / "new" / "store.db")))


async def test_database_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """The file and its log hold the key of the CA."""
    old = os.umask(0)
    try:
        database = await SqliteDatabase.open(str(tmp_path / "store.db"))
        await database.commit([a_record(1)])
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        await database.aclose()
    finally:
        os.umask(old)
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600}


async def test_write_ahead_log_is_cut_back_after_a_large_batch(tmp_path: Path) -> None:
    """It grows for one batch and stays within 16 MB and what one batch adds under the writes that follow."""
    database = await SqliteDatabase.open(str(tmp_path / "store.db"))
    wal = tmp_path / "store.db-wal"

    async def write(begin: int, n: int) -> int:
        await database.commit([Record(index=begin + i, kind="task", id=f"t{i}", data=b"x" * 4000) for i in range(n)])
        return wal.stat().st_size

    assert await write(1, 8000) > 30 << 20
    # The first write behind it copies the log, the next begins it anew.
    sizes = [await write(10_000 * i, 100) for i in range(1, 60)]
    await database.aclose()
    assert max(sizes[2:]) < (16 << 20) + (2 << 20)


async def test_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Two managers on one store would destroy it; a killed one gives it free at once."""
    path = str(tmp_path / "store.db")
    program = (
        "import sys, trio\n"
        "from beeyard.runtime.sqlite_database import SqliteDatabase\n"
        "from beeyard.runtime.host import Record\n"
        "async def main():\n"
        f"    database = await SqliteDatabase.open({path!r})\n"
        "    await database.commit([Record(index=1, kind='task', id='a', data=b'x')])\n"
        "    print('open', flush=True)\n"
        "    await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DiskError, match="another process has it open"):
            await SqliteDatabase.open(path)
        other.kill()
        other.wait()
    database = await SqliteDatabase.open(path)
    assert await database.load() == (1, [a_record(1)])
    await database.aclose()


@pytest.mark.parametrize("content", [b"", b"text" * 1000])
async def test_file_of_another_kind_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    """Somebody else's database or file is neither opened nor changed."""
    path = tmp_path / "store.db"
    if content:
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("create table theirs(x)")
        connection.close()
        content = path.read_bytes()
    with pytest.raises(DiskError, match=r"another program|not a database"):
        await SqliteDatabase.open(str(path))
    assert path.read_bytes() == content


async def test_format_of_the_future_is_refused(tmp_path: Path) -> None:
    """An older program does not guess what a newer one wrote."""
    path = tmp_path / "store.db"
    await (await SqliteDatabase.open(str(path))).aclose()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version=99")
    connection.close()
    with pytest.raises(DiskError, match="format is 99"):
        await SqliteDatabase.open(str(path))


async def test_failed_commit_stores_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    """A full database refuses the batch whole, and takes it once there is room."""
    database = await SqliteDatabase.open(str(tmp_path / "store.db"))
    await database.commit([a_record(1, "a", b"old")])
    connection = database._connection
    assert connection is not None
    n_pages = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count={n_pages + 4}")
    with pytest.raises(DiskError, match="the disk is full"):
        await database.commit([a_record(2, "a", b"new"), a_record(3, "b", b"x" * 100_000)])
    assert await database.load() == (1, [a_record(1, "a", b"old")])
    assert await database.changes(1) == []
    await database.commit([a_record(2, "c", b"small")])
    connection.execute("pragma max_page_count=1000000")
    await database.commit([a_record(3, "b", b"x" * 100_000)])
    assert (await database.load())[0] == 3
    await database.aclose()


async def test_cancelled_commit_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    """A caller that gives up does not leave half a batch."""
    import trio

    database = await SqliteDatabase.open(str(tmp_path / "store.db"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await database.commit([a_record(1, "a"), a_record(2, "b")])
    index, records = await database.load()
    assert (index, len(records)) in ((0, 0), (2, 2))
    await database.commit([a_record(3, "c")])
    await database.aclose()


async def test_failed_sync_is_not_believed_until_the_next_start(tmp_path: Path) -> None:
    """After an fsync that failed nobody knows what is on the disk: everything is refused until it is opened again."""
    path = str(tmp_path / "store.db")
    database = await SqliteDatabase.open(path)
    await database.commit([a_record(1)])

    def fail(*arguments: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    database._commit = fail  # type: ignore[method-assign]
    with pytest.raises(DiskError, match="failed to sync"):
        await database.commit([a_record(2)])
    del database._commit  # type: ignore[method-assign]
    for refused in (database.commit([a_record(2)]), database.load(), database.changes(0)):
        with pytest.raises(DiskError, match="failed to sync"):
            await refused
    await database.aclose()
    database = await SqliteDatabase.open(path)
    assert await database.load() == (1, [a_record(1)])
    await database.aclose()


@pytest.mark.parametrize("pending_max", [0, 1, 7, 1000])
@pytest.mark.parametrize("clean", [True, False])
async def test_what_is_read_does_not_depend_on_how_far_objects_follow_the_log(
    tmp_path: Path, pending_max: int, clean: bool
) -> None:
    """Against a dictionary, over creations, changes, deletions and new lives, ended in order or by a crash."""
    draw = random.Random(pending_max)
    path = str(tmp_path / "store.db")
    known: dict[str, Record] = {}
    index = 0
    for _ in range(12):
        database = await SqliteDatabase.open(path, log_records_max=20, pending_max=pending_max)
        assert await database.load() == (index, sorted(known.values(), key=lambda record: record.index))
        for _ in range(draw.randrange(6)):
            batch = []
            for _ in range(draw.randrange(1, 9)):
                index += 1
                id_ = draw.choice("abcdefghijklmnop")
                gone = id_ in known and draw.random() < 0.3
                record = Record(index=index, kind="task", id=id_, data=None if gone else b"%d" % index)
                batch.append(record)
                if gone:
                    del known[id_]
                else:
                    known[id_] = record
            await database.commit(batch)
            since = max(0, index - 15)
            assert [record.index for record in await database.changes(since)] == list(range(since + 1, index + 1))
        connection = database._connection
        assert connection is not None
        if clean:
            await database.aclose()
        else:
            connection.close()  # as a crash leaves it: what was committed, and nothing more
    with contextlib.closing(sqlite3.connect(path)) as connection:
        n_objects = connection.execute("select count(*) from object").fetchone()[0]
        n_logged = sum(len(_decode(row[0])) for row in connection.execute("select records from log"))
    assert not clean or n_objects == len(known)
    assert n_logged < 20 + 16 + 2 * 8 + pending_max * 8, "the log is cut"


async def test_a_store_of_the_format_before_is_taken_over(tmp_path: Path) -> None:
    """Format 2 wrote every object at once, and had no word for how far."""
    path = tmp_path / "store.db"
    database = await SqliteDatabase.open(str(path), pending_max=0)
    await database.commit([a_record(1, "a", b"x")])
    await database.aclose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("delete from meta where name='applied'")
        connection.execute("pragma user_version=2")
        connection.commit()
    for _ in range(2):
        database = await SqliteDatabase.open(str(path))
        assert await database.load() == (1, [a_record(1, "a", b"x")])
        await database.commit([])
        await database.aclose()


async def test_damaged_log_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    """Whoever asks for what is in it hears so; what was stored can still be read."""
    path = str(tmp_path / "store.db")
    database = await SqliteDatabase.open(path)
    await database.commit([a_record(1, "a", b"x")])
    await database.aclose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("update log set records=x'c1'")
        connection.commit()
    database = await SqliteDatabase.open(path)
    with pytest.raises(DiskError, match=r"cannot read .*/store.db: its log is damaged \(MessagePack data is malformed"):
        await database.changes(0)
    assert await database.load() == (1, [a_record(1, "a", b"x")])
    await database.aclose()


@pytest.mark.parametrize("name", ["index", "compacted", "applied"])
@pytest.mark.parametrize(
    ("damage", "says"), [("delete from meta where name=?", "None"), ("update meta set value=x'00' where name=?", "b'")]
)
async def test_a_number_that_is_missing_in_the_store_is_told_at_the_start(
    tmp_path: Path, name: str, damage: str, says: str
) -> None:
    """A sentence and no traceback, and the file is let go of."""
    path = str(tmp_path / "store.db")
    await (await SqliteDatabase.open(path)).aclose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(damage, (name,))
        connection.commit()
    for _ in range(2):
        with pytest.raises(
            DiskError, match=rf"cannot open .*/store.db: it is damaged: table meta says {says}.* of {name}"
        ):
            await SqliteDatabase.open(path)
