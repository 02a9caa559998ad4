"""Values that are not in this process."""

from __future__ import annotations

from typing import Any

ELSEWHERE = (
    "This needs the values of the fitted table, which are not kept where a table is fitted in blocks. "
    "Pass samples to transform, impute or score_samples instead."
)


class Elsewhere:
    """Values (D, N) that are not in this process: on workers, while ``table`` can go through them there.

    ``dtype`` is their precision and ``nbytes`` the room they take. ``table`` is a ``nsfa.passing.Table``; it stays
    behind where this is sent, kept or outlives its fit.
    """

    def __init__(self, shape: tuple[int, int], dtype: str = "float64", nbytes: int = 0, table: Any = None) -> None:
        self.shape, self.dtype, self.nbytes, self.table = shape, dtype, nbytes, table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": None}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ValueError(ELSEWHERE)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(ELSEWHERE)
