import numpy as np
from numpy.typing import NDArray

class Branches:
    @property
    def n_leaves(self) -> int: ...
    def __init__(
        self,
        size: int,
        leaf_of: NDArray[np.int32],
        path: NDArray[np.int32],
        weight: NDArray[np.int32],
        last: NDArray[np.uint8],
        tasks: NDArray[np.int64],
    ) -> None: ...
