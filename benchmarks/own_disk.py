"""A file system as hosts have it, for what is measured: ext4 with a journal, in an image file that is mounted for a while.

The machine on which benchmarks run may have another one, and it counts: ext4 without a journal looks through all inodes
that were freed in the last minutes before it takes one, half of what a short task costs (`recently_deleted` in a profile).
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

# 2 GiB, of which the image takes what is written: a cluster's logs and databases are some hundred MB.
SIZE_BYTES = 2 << 30
# 5 s in all, until nobody uses it any more.
LOOKS = 50
# Written before, so that no thread of the kernel does it while something is measured.
_MKFS = ("mkfs.ext4", "-q", "-F", "-O", "has_journal", "-E", "lazy_itable_init=0,lazy_journal_init=0")


@contextlib.contextmanager
def own_disk(place: Path) -> Iterator[Path]:
    """A directory on a file system of its own, mounted at `place`; one of this machine's with a note, if that cannot be.

    Whatever an earlier run left at `place` goes, and what is there in the end as well.
    """
    image = place.with_suffix(".img")
    _take_down(place, image)
    place.mkdir(parents=True)
    try:
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        for command in ((*_MKFS, str(image)), ("mount", "-o", "loop", str(image), str(place))):
            subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        print(f"no file system of its own ({reason}): the state is on that of {place.parent}")
    try:
        yield place
    finally:
        _take_down(place, image)


def _take_down(place: Path, image: Path) -> None:
    for look in range(LOOKS):  # the last process of a cluster may just be ending
        if place.is_mount():
            time.sleep(0.1 if look else 0)
            subprocess.run(("umount", str(place)), check=look == LOOKS - 1, capture_output=look < LOOKS - 1)
    subprocess.run(("rm", "-rf", "--one-file-system", str(place), str(image)), check=True)


__all__ = ["own_disk"]
