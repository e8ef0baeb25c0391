"""Tests on kernels of their own. Those in `guest/` run inside a UML host, and are shown and selected as any other test."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from deploy.uml_host import UmlError
from tests.support.uml_guest import FILE_TIMEOUT_S, REPORTS, GuestReporter, GuestRuns

GUEST = Path(__file__).parent / "guest"
INSIDE = os.environ.get(REPORTS)
runs_key = pytest.StashKey[GuestRuns]()
failed_key = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Inside a host: send reports out."""
    if INSIDE and not config.pluginmanager.has_plugin("guest-reporter"):
        config.pluginmanager.register(GuestReporter(config, INSIDE), "guest-reporter")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All are of this lane; outside, a guest's test also waits for its host."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.uml)
            if GUEST in item.path.parents and not INSIDE:
                item.add_marker(pytest.mark.timeout(2 * FILE_TIMEOUT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Boot the hosts that the selected tests need; they run while other tests do.

    A worker of pytest-xdist boots them as they come to it: it is given some files alone, and others run meanwhile anyway.
    """
    selected = [item.nodeid for item in session.items if GUEST in item.path.parents]
    if selected and not INSIDE and not session.config.option.collectonly:
        session.config.stash[runs_key] = GuestRuns(selected)
        if not hasattr(session.config, "workerinput"):
            session.config.stash[runs_key].start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Outside: a guest's test is not run but its reports are shown."""
    if INSIDE or GUEST not in item.path.parents:
        return None
    hook = item.config.hook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    try:
        data = item.config.stash[runs_key].reports(item.nodeid)
        reports = [hook.pytest_report_from_serializable(config=item.config, data=each) for each in data]
    except UmlError as error:
        reports = [pytest.TestReport(item.nodeid, item.location, {}, "failed", str(error), "call")]
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep whether a test has failed, for fixtures that then show more."""
    report = yield
    if report.failed:
        item.stash[failed_key] = True
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """No host outlives the run."""
    runs = config.stash.get(runs_key, None)
    if runs is not None:
        runs.close()


@pytest.fixture
def has_failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has failed so far."""
    return lambda: request.node.stash.get(failed_key, False)


@pytest.fixture(autouse=True)
def _as_root() -> None:
    assert os.geteuid() == 0, "UML hosts are plugged into namespaces: run as root"
