import numpy as np
from numpy.typing import NDArray

from beeyard.core.filters import Ask
from beeyard.core.node_table import NodeTable

FORM_PACK: int
FORM_SHAPE: int

class BestFit:
    def __init__(self) -> None: ...
    def place(
        self, table: NodeTable, ask: Ask, form: int, rows: NDArray[np.int32], pools: NDArray[np.int32]
    ) -> int: ...
    def place_each(
        self, table: NodeTable, ask: Ask, form: int, amounts: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> int: ...

def place_at(
    table: NodeTable, ask: Ask, wanted: NDArray[np.int32], rows: NDArray[np.int32], pools: NDArray[np.int32]
) -> int: ...
