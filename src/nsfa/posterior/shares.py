"""Aligned draws, block by block, and how much of a feature's variance a factor explains in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import Draw
from nsfa.posterior.align import Alignment
from nsfa.posterior.columns import Active, Columns, Dense, add_at, gathered

if TYPE_CHECKING:
    from nsfa.data import Observed

# A factor's core genes are those of whose variance it explains at least this share.
EFFECT = 0.05
# How often something holds of each loading.
Counts = NDArray[np.int32]


@dataclass(frozen=True)
class Picks:
    """Some entries of an array (D, K)."""

    row: Ints
    column: Ints
    shape: tuple[int, int]

    @cached_property
    def place(self) -> Ints:
        """Each entry's number among them (D K,); those that are not come after the last."""
        out = np.full(self.shape[0] * self.shape[1], len(self.row))
        out[self.row * self.shape[1] + self.column] = np.arange(len(self.row))
        return out


@dataclass(frozen=True)
class SideBySide:
    """Some draws, their aligned loadings (D, draws, K) on the model's scale, which factors they contain (draws, K).

    ``variance`` (D, draws) is that of every feature, of all factors of the draw and noise.
    """

    which: Ints
    loadings: Floats
    there: Bools
    variance: Floats

    @cached_property
    def _nonzero(self) -> Bools:
        out: Bools = self.loadings != 0
        return out

    def power(self) -> Floats:
        """Sum of squared loadings of every factor (draws, K)."""
        out: Floats = np.einsum("dnk,dnk->nk", self.loadings, self.loadings)
        return out

    def sizes(self) -> Ints:
        """Number of features that use each factor (draws, K)."""
        out: Ints = np.count_nonzero(self._nonzero, axis=0)
        return out

    def count_active(self, out: Counts) -> None:
        """Add to (D, K) in how many of the draws a loading is active."""
        out += np.count_nonzero(self._nonzero, axis=1)

    def count_reaching(self, out: Counts, effect: float) -> None:
        """The same for draws in which the factor explains at least this share, above 0, of the feature's variance."""
        out += np.count_nonzero(self.loadings**2 >= effect * self.variance[:, :, None], axis=1)

    def add_to(self, out: Floats, chain: Ints) -> None:
        """Add each draw's loadings to those of its chain, out (chains, D, K)."""
        for c in np.unique(chain):
            out[c] += self.loadings[:, chain == c].sum(axis=1)

    def picked(self, some: Picks) -> Floats:
        """Some entries (draws, entries)."""
        out: Floats = self.loadings[some.row, :, some.column].T
        return out

    def dense(self) -> Floats:
        """All entries (D, draws, K)."""
        return self.loadings


@dataclass(frozen=True)
class OneDraw:
    """The same of one large draw: factor, position in (D, K) and value of each active loading.

    ``variance`` is that of the loading's feature.
    """

    which: Ints
    factor: Ints
    position: Ints
    values: Floats
    there: Bools
    variance: Floats
    shape: tuple[int, int]

    def power(self) -> Floats:
        """Sum of squared loadings of every factor (1, K)."""
        power: Any = np.bincount(self.factor, self.values**2, self.shape[1])
        return power[None]  # type: ignore[no-any-return]

    def sizes(self) -> Ints:
        """Number of features that use each factor (1, K)."""
        return np.bincount(self.factor, minlength=self.shape[1])[None]

    def count_active(self, out: Counts) -> None:
        """Add to (D, K) whether a loading is active."""
        add_at(out, self.position, 1)

    def count_reaching(self, out: Counts, effect: float) -> None:
        """The same for those by which the factor explains at least this share, above 0, of the feature's variance."""
        add_at(out, self.position[self.values**2 >= effect * self.variance], 1)

    def add_to(self, out: Floats, chain: Ints) -> None:
        """Add the draw's loadings to those of its chain, out (chains, D, K)."""
        add_at(out[chain[0]], self.position, self.values)

    def picked(self, some: Picks) -> Floats:
        """Some entries (1, entries)."""
        out, place = np.zeros((1, len(some.row) + 1)), some.place[self.position]
        # those that are not asked for go to the last place
        out[0, place] = self.values
        return out[:, :-1]

    def dense(self) -> Floats:
        """All entries (D, 1, K)."""
        out = np.zeros(self.shape)
        out.reshape(-1)[self.position] = self.values
        return out[:, None]


Block = SideBySide | OneDraw


def aligned_blocks(draws: Sequence[Draw], which: Ints, alignment: Alignment, keep: Ints) -> Iterator[Block]:
    """Loadings of the draws ``which``, rotated, with the columns ``keep`` of the pivot in order, block by block."""
    # the last place is for factors that are none of the pivot's, whose number is −1
    place = np.full(alignment.pivot.shape[1] + 1, -1)
    place[keep] = np.arange(len(keep))

    def one(block: Ints, g: Columns) -> Block:
        own = [draws[i] for i in block]
        where = place[np.concatenate([alignment.factor[i] for i in block])]
        sign = np.concatenate([alignment.sign[i] for i in block])
        if isinstance(g, Active):
            return _one_draw(block, own[0], g, where, sign, len(keep))
        return _abreast(block, own, g, where, sign, len(keep))

    return gathered(one, draws, which, alignment.rotation, least=max(len(keep), 1))


def _abreast(block: Ints, draws: Sequence[Draw], g: Dense, where: Ints, sign: Floats, n_factors: int) -> SideBySide:
    draw = np.repeat(np.arange(len(block)), [one.n_factors for one in draws])
    own = np.flatnonzero(where >= 0)
    out = np.zeros((len(g.values), len(block) * n_factors))
    out[:, draw[own] * n_factors + where[own]] = g.values[:, own] * sign[own]
    there = np.zeros((len(block), n_factors), dtype=np.bool_)
    there[draw[own], where[own]] = True
    variance = np.stack([1.0 / one.noise_precision for one in draws], axis=1)
    for i in range(len(draws)):
        part = g.values[:, draw == i]
        variance[:, i] += np.einsum("dk,dk->d", part, part)
    return SideBySide(block, out.reshape(len(out), len(block), n_factors), there, variance)


def _one_draw(block: Ints, draw: Draw, g: Active, where: Ints, sign: Floats, n_factors: int) -> OneDraw:
    variance = 1.0 / draw.noise_precision + np.bincount(g.row, g.values**2, g.shape[0])
    row, column, values = g.placed(where, sign)
    if not values.all():
        # rounded to nothing
        row, column, values = row[values != 0], column[values != 0], values[values != 0]
    there = np.zeros((1, n_factors), dtype=np.bool_)
    there[0, where[where >= 0]] = True
    position = row * n_factors + column
    return OneDraw(block, column, position, values, there, variance[row], (g.shape[0], n_factors))


@dataclass(frozen=True)
class Shares:
    """The draws behind a consensus, asked how much of a feature's variance a factor explains.

    ``pivot`` has the alignment's columns of the factors, in order.
    """

    data: Observed
    draws: Sequence[Draw]
    alignment: Alignment
    pivot: Ints
    _last: dict[float, Floats] = field(default_factory=dict)

    def probability(self, effect: float) -> Floats:
        """Share (n_features, K) of the draws with the factor in which it explains at least ``effect`` of the variance.

        A pass over all draws, a block at a time; the last answer is kept, so that the next factor costs nothing.
        """
        if effect not in self._last:
            often = np.zeros((self.draws[0].shape[0], len(self.pivot)), dtype=np.int32)
            count: Any = 0
            every = np.arange(len(self.draws))
            for block in aligned_blocks(self.draws, every, self.alignment, self.pivot):
                block.count_reaching(often, effect)
                count += np.count_nonzero(block.there, axis=0)
            self._last.clear()
            self._last[effect] = self.data.to_user(often / count, power=0)
        return self._last[effect]
