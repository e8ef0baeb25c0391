"""A task whose image nobody here runs is refused with the name of who does."""

from __future__ import annotations

import pytest

from beeyard.agent.image import NoExecutor, executor_for


class Only:
    def __init__(self, name: str, *images: str) -> None:
        self.name = name
        self.images = images

    def runs(self, image: str) -> bool:
        return image in self.images


def test_the_first_executor_that_runs_the_image_gets_it():
    process, other = Only("process", "host"), Only("other", "host", "more")
    assert executor_for("host", [process, other]) is process
    assert executor_for("more", [process, other]) is other


def test_a_foreign_image_is_refused_with_the_names_of_who_runs_it():
    with pytest.raises(NoExecutor) as caught:
        executor_for("nginx:latest", [Only("process", "host")])
    assert str(caught.value) == (
        'image nginx:latest: this node runs only the image "host" (executor process); '
        "images are run by the docker or oci executor"
    )


def test_a_node_without_executors_says_so():
    with pytest.raises(NoExecutor, match="image host: this node has no executor"):
        executor_for("host", [])
