"""Aligned draws, block by block, and how much of a feature's variance a factor explains in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.draw import Draw
from nsfa.posterior.align import Alignment, blocks, side_by_side

if TYPE_CHECKING:
    from nsfa.data import Observed

# A factor's core genes are those of whose variance it explains at least this share.
EFFECT = 0.05
# Some draws, their aligned loadings (D, draws, K) on the model's scale, which factors they contain (draws, K), and the
# variance of every feature, of all factors of the draw and noise (D, draws).
Block = tuple[Ints, Floats, Bools, Floats]


def aligned_blocks(draws: Sequence[Draw], which: Ints, alignment: Alignment, keep: Ints) -> Iterator[Block]:
    """Loadings of the draws ``which``, rotated, with the columns ``keep`` of the pivot in order, block by block."""
    # the last place is for factors that are none of the pivot's, whose number is −1
    place = np.full(alignment.pivot.shape[1] + 1, -1)
    place[keep] = np.arange(len(keep))
    for block in blocks(draws, which, least=max(len(keep), 1)):
        g = side_by_side([draws[i] for i in block], [alignment.rotation[i] for i in block])
        where = place[np.concatenate([alignment.factor[i] for i in block])]
        draw = np.repeat(np.arange(len(block)), [draws[i].n_factors for i in block])
        own = np.flatnonzero(where >= 0)
        sign = np.concatenate([alignment.sign[i] for i in block])[own]
        out = np.zeros((len(g), len(block) * len(keep)))
        out[:, draw[own] * len(keep) + where[own]] = g[:, own] * sign
        there = np.zeros((len(block), len(keep)), dtype=np.bool_)
        there[draw[own], where[own]] = True
        yield block, out.reshape(len(g), len(block), len(keep)), there, _variances([draws[i] for i in block], g)


def _variances(draws: Sequence[Draw], g: Floats) -> Floats:
    """Variance of every feature in every draw, Σ_k g² + ψ (D, draws), from the draws' loadings side by side."""
    out = np.stack([1.0 / draw.noise_precision for draw in draws], axis=1)
    edges = np.cumsum([0, *(draw.n_factors for draw in draws)])
    for i in range(len(draws)):
        own = g[:, edges[i] : edges[i + 1]]
        out[:, i] += np.einsum("dk,dk->d", own, own)
    return out


def reaching(g: Floats, variance: Floats, effect: float) -> Ints:
    """In how many draws a factor explains at least this share of a feature's variance (D, K); ``effect`` above 0."""
    out: Ints = np.count_nonzero(g * g >= effect * variance[:, :, None], axis=1)
    return out


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
            often: Any = 0
            count: Any = 0
            every = np.arange(len(self.draws))
            for _, g, there, variance in aligned_blocks(self.draws, every, self.alignment, self.pivot):
                often += reaching(g, variance, effect)
                count += np.count_nonzero(there, axis=0)
            self._last.clear()
            self._last[effect] = self.data.to_user(often / count, power=0)
        return self._last[effect]
