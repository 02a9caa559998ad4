"""A factor for each sample, during warm-up: more than a table needs, for the moves to make true ones of.

No move of the posterior, a shorter way to it. Where thousands of genes share many small modules, each comes late: the
first genes of a factor have to agree by chance before others can join them. A sample's own deviations hold pieces of
all modules that the sample is in, and factors made of these soon lose what does not belong together.
"""

from __future__ import annotations

import numpy as np

from nsfa.moves.simplify import KEPT_FROM, append
from nsfa.samples import Samples
from nsfa.state import State

# What is left is shared where samples are so many times as alike as chance makes them, and by so many standard
# deviations. Samples of unequal noise come to 1.3 where their standard deviations spread by 30 %.
ALIKE, SURE = 1.4, 5.0


def shared(state: State, samples: Samples, rng: np.random.Generator) -> bool:
    """Whether what the factors leave of the samples is more alike than chance.

    Of M pairs of samples, whatever the genes' tails and the samples' noise, the squared correlations over D independent
    features have the sum M/D, give or take √(2M)/D. Missing entries are drawn first and forgotten afterwards. Cost
    O(D N (K + N)).
    """
    pairs = 0.5 * samples.n_samples * (samples.n_samples - 1)
    beyond = samples.likeness(state, rng) - 1.0
    return bool(beyond > ALIKE - 1.0 and beyond * np.sqrt(0.5 * pairs) > SURE)


def seed(state: State, samples: Samples, rng: np.random.Generator) -> None:
    """Give every sample that has none a factor of its own, on the features that clearly deviate in it.

    Missing entries are drawn first and forgotten afterwards. Changes the state, the scores and the statistics. Cost
    O(D N (K + N)).
    """
    append(state, samples, samples.add_own(state, rng), KEPT_FROM / np.sqrt(samples.n_samples))
