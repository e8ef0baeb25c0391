import numpy as np
from numpy.typing import NDArray

from beeyard.core.filters import Ask
from beeyard.core.node_table import NodeTable

def spread(table: NodeTable, ask: Ask, rows: NDArray[np.int32], pools: NDArray[np.int32]) -> int: ...
