"""A factor for each sample, during warm-up: more than a table needs, for the moves to make true ones of.

No move of the posterior, a shorter way to it. Where thousands of genes share many small modules, each comes late: the
first genes of a factor have to agree by chance before others can join them. A sample's own deviations hold pieces of
all modules that the sample is in, and factors made of these lose what does not belong together within a hundred sweeps.
"""

from __future__ import annotations

import numpy as np

from nsfa.moves.simplify import append
from nsfa.samples import Samples
from nsfa.state import State

# Samples differ by more than chance where one of them is so many standard deviations above what shuffled genes give.
UNEVEN = 5.0
# Deviations of at least so many standard deviations of the noise are a new factor's loadings.
CLEAR = 2.0


def uneven(state: State, samples: Samples, rng: np.random.Generator) -> bool:
    """Whether the factors leave more of some sample than chance would: of single genes' tails each gets its share.

    Missing entries are drawn first and forgotten afterwards. Cost O(D N K).
    """
    return bool(samples.unevenness(state, rng).max() > UNEVEN)


def seed(state: State, samples: Samples, rng: np.random.Generator) -> None:
    """Give every sample that has none a factor of its own, on the features that clearly deviate in it.

    Missing entries as above. Changes the state, the scores and the statistics. Cost O(D N (K + N)).
    """
    loadings = samples.add_own(state, rng)
    if loadings.shape[1]:
        append(state, samples, loadings, CLEAR / np.sqrt(samples.n_samples))
