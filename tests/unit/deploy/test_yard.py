"""What `./yard up`, `down` and `exec` take."""

from __future__ import annotations

import pytest

from deploy.yard import main


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--node", "3"], "unrecognized arguments: --node"),
        (["up", "--det"], "unrecognized arguments: --det"),
        (["up", "--nodes", "0"], "argument --nodes: '0' is not a number of nodes from 1 to"),
        (["down", "--force"], "unrecognized arguments: --force"),
    ],
)
def test_flags_are_written_out(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that is cut short is refused, as those of `beeyard manage` and `join` are, before anything is touched."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
