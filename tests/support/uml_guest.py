"""Runs tests inside UML hosts and hands their reports to the pytest that was asked for them.

The tests of one file run in one host, by a pytest of its own in there (`GuestReporter` is its side). It writes every
report as a line to a file on a folder that both see; `GuestRuns` reads them out here as they come, so that each test
is an item out here too, can be selected, and shows its own failure.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.uml_host import UmlError, UmlHost, compile_tree, own_directory

ROOT = Path(__file__).resolve().parents[2]
REPORTS = "BEEYARD_UML_REPORTS"  # in the environment inside: where reports go
# How long the tests of one file may take inside, with the boot, on a busy machine.
FILE_TIMEOUT_S = 400.0
# And one test, with what it sets up for those that follow.
TEST_TIMEOUT_S = 240.0
AT_ONCE = 2


class GuestReporter:
    """Inside: a pytest plugin that writes each report out, at once."""

    def __init__(self, config: pytest.Config, path: str) -> None:
        self._config = config
        self._file = open(path, "a")  # noqa: SIM115 - as long as the run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test has ended."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())  # what a kernel has not written yet is not seen outside


class GuestRuns:
    """Outside: the hosts that run the selected tests, one a file, each booted when the first of its tests is asked for."""

    def __init__(self, node_ids: list[str]) -> None:
        compile_tree()
        self._base = own_directory("guest")
        self._ids: dict[str, list[str]] = {}
        for node_id in node_ids:
            self._ids.setdefault(node_id.partition("::")[0], []).append(node_id)
        self._hosts: dict[str, UmlHost] = {}
        self._seen: dict[str, list[dict[str, Any]]] = {node_id: [] for node_id in node_ids}
        self._read = dict.fromkeys(self._ids, 0)
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._runs: dict[str, concurrent.futures.Future[int]] = {}

    def start(self) -> None:
        """Boot all hosts, as soon as there is room."""
        for file in self._ids:
            self._start(file)

    def _start(self, file: str) -> None:
        if file not in self._runs:
            stem = Path(file).stem
            self._hosts[file] = UmlHost(stem.replace("_", "-"), self._base / stem)
            self._runs[file] = self._pool.submit(self._run, file, self._ids[file])

    def _run(self, file: str, node_ids: list[str]) -> int:
        host = self._hosts[file]
        options = ("-q", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_S}")
        pytest_command = [sys.executable, "-m", "pytest", *options, *node_ids]
        host.boot(
            f"cd {shlex.quote(str(ROOT))}\n"
            f"export {REPORTS}=/share/reports PATH={shlex.quote(os.environ['PATH'])} PYTHONDONTWRITEBYTECODE=1\n"
            f"{shlex.join(pytest_command)}\n"
        )
        return host.finish(FILE_TIMEOUT_S)

    def reports(self, node_id: str) -> list[dict[str, Any]]:
        """The reports of one test, when it has run.

        Raises:
            UmlError: its host ended without them.
        """
        file = node_id.partition("::")[0]
        self._start(file)
        while True:
            run_is_over = self._runs[file].done()
            self._read_new(file)
            if any(report["when"] == "teardown" for report in self._seen[node_id]):
                return self._seen[node_id]
            if run_is_over:
                self._runs[file].result()
                raise UmlError(f"the pytest inside did not report of {node_id}:\n{self._hosts[file].tail(80)}")
            time.sleep(0.05)

    def _read_new(self, file: str) -> None:
        path = self._hosts[file].share / "reports"
        if path.exists():
            with path.open() as lines:
                lines.seek(self._read[file])
                for line in lines:
                    if not line.endswith("\n"):
                        break
                    self._read[file] += len(line.encode())
                    report = json.loads(line)
                    self._seen[report["nodeid"]].append(report)

    def close(self) -> None:
        """End what still runs and remove everything."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for host in self._hosts.values():
            host.remove()
        shutil.rmtree(self._base, ignore_errors=True)
