"""Which executor runs an image."""

from __future__ import annotations

from collections.abc import Sequence

from beeyard.core.errors import HostError
from beeyard.runtime.host import Executor


class NoExecutor(HostError):
    """No executor of this node runs the image."""

    def __init__(self, image: str, executors: Sequence[Executor]) -> None:
        super().__init__(image)
        self.image = image
        here = []
        for executor in executors:
            noun = "image" if len(executor.images) == 1 else "images"
            names = ", ".join(f'"{name}"' for name in executor.images)
            here.append(f"{noun} {names} (executor {executor.name})")
        self._here = "runs only the " + " and the ".join(here) if here else "has no executor"

    def __str__(self) -> str:
        return f"image {self.image}: this node {self._here}; images are run by the docker or oci executor"


def executor_for(image: str, executors: Sequence[Executor]) -> Executor:
    """The first executor that runs the image.

    Raises:
        NoExecutor
    """
    for executor in executors:
        if executor.runs(image):
            return executor
    raise NoExecutor(image, executors)


__all__ = ["NoExecutor", "executor_for"]
