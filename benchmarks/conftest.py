"""Tells beside every benchmark on which machine it ran and how busy that was, and what it found out."""

from __future__ import annotations

import os
import platform
import sqlite3
import ssl
from pathlib import Path
from typing import Any

import pytest


def machine() -> dict[str, Any]:
    """What figures depend on."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ": unknown")
    return {
        "cpu_model": cpu.partition(":")[2].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "load_before": os.getloadavg()[0],
    }


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Into the JSON file."""
    machine_info.update(machine(), load_after=os.getloadavg()[0])


def pytest_report_header(config: pytest.Config) -> str:
    """On the screen, also with -q."""
    return "machine: " + ", ".join(f"{name} {value}" for name, value in machine().items())


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The figures that each benchmark recorded, a line each."""
    session = getattr(config, "_benchmarksession", None)
    terminalreporter.section("figures")
    terminalreporter.line(pytest_report_header(config))
    for bench in getattr(session, "benchmarks", ()):
        figures = ", ".join(f"{name} {value}" for name, value in bench.extra_info.items())
        terminalreporter.line(f"{bench.name}: {figures}")
