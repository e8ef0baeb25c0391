"""What an operator may set for a manager."""

from __future__ import annotations

import msgspec


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one manager daemon, fixed while it runs."""

    state_dir: str = "/var/lib/beeyard/manager"  # holds the store and the CA's key: for root alone
    listen: str = "tcp://0.0.0.0:2377"  # where agents connect
    api_socket: str = "unix:///run/beeyard/docker.sock"
    api_group: str = "beeyard"  # may use the API besides root
    # What agents are told to connect to, "tcp://10.0.0.7:2377"; "": the address that is listened on.
    advertise: str = ""
    node_name: str = ""  # of the node on this manager's own host; "": its hostname
    # Tasks in one transaction: some 20 ms to build and encode, so others are not held up. Raising it saves fsyncs when
    # thousands of tasks start, and delays everything that is queued behind.
    commit_tasks_max: int = 1000
    # How long the scheduler waits for more to decide at once, after the last change and in all. Source: SwarmKit
    # `commitDebounceGap`, `maxLatency`. The first change after a quiet time does not wait.
    debounce_gap_s: float = 0.05
    debounce_max_s: float = 1.0

    @property
    def store_path(self) -> str:
        """The database file."""
        return f"{self.state_dir}/store.db"
