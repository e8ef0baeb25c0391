"""What this process holds."""

import os
import threading


def descriptors_and_threads() -> tuple[int, int]:
    """Their numbers; without the threads that trio keeps for a while for whoever needs one next."""
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("Trio")]
    return len(os.listdir("/proc/self/fd")), len(threads)
