"""Who may import whom, and which modules are for the ports alone. Reads .py, .pyx and .pxd as text and syntax trees."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "runtime", "discovery", "placement", "netdrivers", "manager", "agent", "cli")

MAY_IMPORT = {
    "core": {"core"},
    "runtime": {"core", "runtime"},
    "discovery": {"core", "runtime", "discovery"},
    "netdrivers": {"core", "runtime", "netdrivers"},
    "placement": {"core", "runtime", "placement"},
    "manager": {"core", "runtime", "discovery", "placement", "manager"},
    "agent": {"core", "runtime", "discovery", "netdrivers", "agent"},
    "cli": {"core", "runtime", "discovery", "cli"},  # a daemon's command is imported by its name, when it is to run
}

# Not deterministic, so only behind a port. Attribute names are checked as `module.name`.
BANNED_MODULES = {"time", "uuid", "secrets", "socket", "threading", "subprocess", "multiprocessing", "asyncio"}
BANNED_NAMES = {
    "os.urandom",
    "trio.socket",
    "trio.to_thread",
    "trio.open_file",
    "trio.run_process",
    "trio.open_tcp_stream",
    "trio.open_unix_socket",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
}
CORE_BANNED_MODULES = BANNED_MODULES | {"trio", "random", "os"}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def is_port(path: Path) -> bool:
    """Whether this file is where the outside world is touched."""
    relative = path.relative_to(ROOT).as_posix()
    return (
        relative.startswith(("runtime/real", "agent/executors/process/", "cli/"))
        or relative in ("runtime/sqlite_database.py", "runtime/pki.py")
        or path.name == "__main__.py"
    )


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_packages_import_only_what_lies_below_them() -> None:
    """The arrows between folders point one way."""
    wrong = []
    for path in sources():
        for line, module in imported_modules(ast.parse(path.read_text())):
            match = re.match(r"beeyard\.(\w+)", module)
            # The assembly of a real daemon is the one place that knows every implementation.
            if match and match[1] in PACKAGES and match[1] not in MAY_IMPORT[package_of(path)]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("folder", ["wire", "swim", "serf"])
def test_rules_of_gossip_know_no_io(folder: str) -> None:
    """They are given messages and the time, and leave commands: no port, no waiting, no log."""
    paths = sorted((ROOT / "discovery/gossip" / folder).glob("*.py"))
    assert len(paths) > 5
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in paths
        for line, module in imported_modules(ast.parse(path.read_text()))
        if module.split(".")[0] in ("trio", "structlog") or module.startswith("beeyard.runtime")
    ]
    assert wrong == []


def test_the_kernel_cimports_only_core() -> None:
    """Compiled modules keep to the same border."""
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / "core").glob("*.p[yx][xd]"))
        for module in re.findall(r"beeyard\.(\w+)", path.read_text())
        if module != "core"
    ]
    assert wrong == []


def test_nothing_imports_the_folders_by_their_bare_names() -> None:
    """`import core` would load a module a second time under another name."""
    wrong = []
    for path in [*sources(), *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        for line, module in imported_modules(ast.parse(path.read_text())):
            if module.split(".")[0] in PACKAGES:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("package", [p for p in PACKAGES if (ROOT / p).is_dir()])
def test_the_outside_world_is_reached_through_ports_alone(package: str) -> None:
    """Clocks, randomness, sockets, threads and processes live in the real ports and in `__main__.py`."""
    banned_modules = CORE_BANNED_MODULES if package == "core" else BANNED_MODULES
    wrong = []
    for path in sources():
        if package_of(path) != package or is_port(path):
            continue
        tree = ast.parse(path.read_text())
        for line, module in imported_modules(tree):
            if module.split(".")[0] in banned_modules or module in BANNED_NAMES:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
        for node in ast.walk(tree):
            name = dotted(node) if isinstance(node, ast.Attribute) else ""
            if name in BANNED_NAMES or (name.startswith("random.") and name != "random.Random"):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} uses {name}")
    assert wrong == []


# Where an unexpected error may be caught: it ends that request, session, task or connection, and nothing else.
FIREBREAKS = {
    "manager/api/http_server.py",
    "manager/api/app.py",
    "manager/lifecycle.py",  # scheduling one service's group
    "manager/dispatch/session.py",
    "manager/dispatch/dispatcher.py",
    "manager/transition.py",  # one task of a lot that is stored
    "manager/hooks/run.py",  # one hook of one task
    "manager/ipam/ask.py",  # one question to a plugin
    "manager/ipam/give_back.py",  # one lease on its way back
    "manager/ipam/pools.py",  # one pool on its way back
    "discovery/self_discovery.py",  # gossip: whoever is on the LAN may speak to it
    "agent/session.py",
    "agent/workload.py",
    "agent/lifecycle.py",
    "runtime/real_hook_entry.py",  # a hook of somebody else: its error is its refusal
    "runtime/real_net.py",
    "runtime/sim_net.py",
    "runtime/sim.py",  # what the clean-up of a daemon that was killed runs into
}


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` takes errors that nobody expected."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind) in ("Exception", "BaseException") for kind in kinds)


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it only cleans up and raises the same error again."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_unexpected_errors_are_caught_only_at_the_firebreaks() -> None:
    """`except Exception` stands where one request, session, task or connection ends, and nowhere else."""
    found = set()
    for path in sources():
        if is_port(path) and "executors" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and catches_everything(node) and not passes_on(node):
                found.add(path.relative_to(ROOT).as_posix())
    assert found - FIREBREAKS == set()
