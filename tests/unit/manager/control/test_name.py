"""Names that are drawn."""

import random
from collections.abc import Collection

from beeyard.manager.control.name import draw_name


class Names:
    """A view in which these names are taken; `None` takes all that have no number."""

    def __init__(self, taken: Collection[str] | None) -> None:
        self.taken = taken

    def by_name(self, kind: type, name: str) -> object | None:
        taken = name.count("_") < 2 if self.taken is None else name in self.taken
        return object() if taken else None


def test_a_drawn_name_is_free() -> None:
    """A name that is taken is drawn again."""
    first = draw_name(random.Random(7), Names(()))
    assert draw_name(random.Random(7), Names({first})) != first


def test_a_crowded_cluster_still_gets_a_name() -> None:
    """When every plain name is taken, a number is added."""
    assert draw_name(random.Random(7), Names(None)).split("_")[2].isdigit()
