"""What the documents name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]


def documents() -> list[Path]:
    return [*DOCUMENTS, *sorted((ROOT / "docs").rglob("*.md"))]


FILE_NAMED = re.compile(
    r"`((?:core|runtime|manager|agent|netdrivers|discovery|tests|benchmarks|deploy|docs)/[\w./-]+)`"
)


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link has a target."""
    broken = [
        f"{document.relative_to(ROOT)} -> {target}"
        for document in documents()
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []


def test_files_named_in_documents_exist() -> None:
    """`manager/lifecycle.py` in a document is a file of the tree."""
    missing = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents()
        if document.name != "CHANGELOG.md" and "adr" not in document.parts
        for name in FILE_NAMED.findall(document.read_text())
        if not (ROOT / name).exists()
    ]
    assert missing == []


def test_decisions_are_numbered_without_gaps() -> None:
    """Each decision record has the next number."""
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs/adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_worked_example_is_run() -> None:
    """A heading that no test names is an example that nobody tries."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    headings = re.findall(r"^### (Example .*)$", (ROOT / "docs/networks.md").read_text(), re.MULTILINE)
    assert len(headings) == 3
    assert [heading for heading in headings if f'"{heading}"' not in tests] == []
