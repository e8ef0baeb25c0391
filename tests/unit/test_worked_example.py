"""How the examples of a document are read and compared: what is too lenient here tries nothing."""

import pytest

from tests.support.worked_example import Block, blocks_of, shows

DOCUMENT = """\
## The examples

```sh
# a comment, no heading
f() { true; }
```

### Example 1: one

```
not run
```

```sh
f
```

Between.

```text
…
out
```

```sh
g
```

### Example 2: two

```sh
h
```
"""


def test_blocks_are_those_of_their_section():
    """Fences without a language are for the reader alone."""
    assert blocks_of(DOCUMENT, "The examples") == [Block("# a comment, no heading\nf() { true; }\n")]
    assert blocks_of(DOCUMENT, "Example 1: one") == [Block("f\n", "…\nout\n"), Block("g\n")]
    assert blocks_of(DOCUMENT, "Example 2: two") == [Block("h\n")]


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("a  b\n\nc\n", "a b\nc\n", True),
        ("a b c\n", "a … c\n", True),
        ("10.0.0.1/24 web.1.x\n", "10.0.0.1/24 web.…\n", True),
        ("x\ny\nend\n", "…\nend\n", True),
        ("", "", True),
        ("a\n", "", False),
        ("a\nb\n", "a\n", False),
        ("1000\n", "10.0\n", False),
        ("x\nend\nmore\n", "…\nend\n", False),
    ],
)
def test_what_is_printed_is_compared_line_by_line(printed, expected, same):
    """White space and … are free, all else is not."""
    assert shows(printed, expected) is same
