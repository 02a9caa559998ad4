"""One chain's samples: the table's values and holes, the scores, and what everything else needs to know of them.

Whatever has a sample axis is in here. Outside, a table is its statistics S = XᵀX, T = Y X and q = Σ y² (docs/model.md),
and a change of the scores is a verb: drawn anew, turned by a K × K map, shifted. A table in parts is a sum over such
objects, another device or likelihood another class with the same verbs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsfa.arrays import Floats, Ints
from nsfa.data import Observed
from nsfa.directions import beyond_noise, widest
from nsfa.kernels import Doubled, Doublets, Kernels, Marginal, Projection, Rows
from nsfa.kernels.modules import Modules, Tried, try_module
from nsfa.kernels.streams import Numbers, fresh_key
from nsfa.state import State, widened, without

Generator = np.random.Generator

# Tables of so many entries are small: making their residuals costs little beside a sweep, in time and in memory.
SMALL = 5_000_000
# Residuals count as no further from zero than so many standard deviations, so that single outliers decide nothing.
CUT_OFF = 3.0
# A sample with more than this share of a factor's power has that factor for its own.
OWN = 0.5
# So many times as many features as samples are many: products of all samples with each other cost little, then. With
# fewer samples than this hardly any factor would rest on as many of them as factors must that come and go at once.
MANY, LEAST_SAMPLES = 10, 30
# With more samples than this, a factor for each is more than a warm-up can drop again in little time.
MOST_SEEDED = 200


class Samples:
    """Values, holes and scores of one chain's samples, held in this process's memory.

    ``gram`` S (K, K), ``cross`` T (D, K) and ``power`` q (D,) are those of the scores and intercepts at the last
    ``refresh``, or what ``turn`` made of them; ``valid`` says whether they still are. ``residual`` (D,) is
    Σ_n (y_dn − μ_d − g_d·x_n)² over observed entries; the loadings' moves leave it behind at no cost, and it holds
    until the loadings, the scores or the intercepts change. ``first`` is the first sample's number in the whole table.
    ``exposure`` (N,) is the log of how much of each sample was counted, where that is drawn. With robust noise
    ``outlier_share`` (N, J + 1) are each sample's shares of ordinary entries and of outliers of each scale, and
    ``outlier_number`` (N, J + 1) how many of its entries are.
    """

    exposure: Floats | None = None
    outlier_share: Floats | None = None
    outlier_number: Floats | None = None

    def __init__(self, data: Observed, kernels: Kernels, first: int = 0) -> None:
        self.data, self.kernels, self.first = data, kernels, first
        self.holes = data.feature_holes
        self.n_features, self.n_samples = data.shape
        self.count = data.count
        self.n_observed = float(data.count.sum())
        self.residual = data.power.copy()
        # clustered scores are never integrated out
        self.log_evidence = math.nan
        self.cluster: Ints | None = None
        self.gram: Floats = np.zeros((0, 0))
        self.cross: Floats = np.zeros((self.n_features, 0))
        self.power = data.power
        self.valid = False
        self._room: Floats = np.zeros(0)
        self._buffer: Floats = np.zeros((self.n_samples, 0))
        self._n_factors = 0

    @property
    def can(self) -> frozenset[str]:
        """What moves may ask for.

        "whole": all samples are at hand. "complete": ``complete_cross`` gives T with nothing missing. "dense": values
        can be completed and gone through feature by feature; "small": so can their residuals, however many features.
        "many features": there are ``MANY`` times as many as samples, and ``LEAST_SAMPLES`` of these; "seed": and
        few enough samples for a factor each.
        "at once": features are not gone through one after another. "latent": ``draw_latent`` draws the values
        themselves, at the end of every sweep; "carry": they can go along with means, loadings and scores.
        """
        return abilities(self.data)

    @property
    def complete(self) -> bool:
        """Whether no entry is missing."""
        return self.data.complete

    @property
    def table_power(self) -> Floats:
        """Σ_n y_dn² over observed entries (D,), whatever the intercepts."""
        return self.data.power

    @property
    def total(self) -> Floats:
        """Σ_n y_dn over observed entries (D,)."""
        return self.data.total

    @property
    def scores(self) -> Floats:
        """Factor scores (N, K): the transpose of the paper's X. A view of the columns in use of a wider buffer."""
        return self._buffer[:, : self._n_factors]

    @property
    def score_power(self) -> float:
        """Σ x² over all scores."""
        return float(np.vdot(self.scores, self.scores))

    def set_scores(self, scores: Floats, width: int | None = None) -> None:
        """Take scores (N, K) as they are, in a buffer of ``width`` columns; ``refresh`` must follow."""
        self._n_factors = scores.shape[1]
        self._buffer = widened(scores, max(width or 0, self._n_factors))
        self.valid = False

    @property
    def numbers(self) -> Numbers:
        """What keys the samples' random numbers: their numbers in the whole table."""
        return self.first

    def close(self) -> None:
        """Give back what these samples hold beside this process's memory: nothing."""

    def place(self, state: State) -> State:
        """The state where these samples want it: as it is, or with its arrays per feature on a device."""
        return state

    def begin(self, state: State, rng: Generator, towards_data: bool = False, clustered: bool = False) -> None:
        """Random scores for the state's factors; ``clustered`` ones begin with a cluster for each sample.

        ``towards_data`` turns them towards the directions in which the samples differ most, rotated at random: two
        steps of subspace iteration on YᵀY, missing entries at their features' means. Cost O(D N K).
        """
        width = state.n_factors
        self.cluster = np.arange(self.n_samples) if clustered else None
        if towards_data:
            # nobody else holds the normals: they go before more is made
            scores = widest(self.data, self.kernels, rng.standard_normal((self.n_samples, width)))
            rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
            scores = scores @ rotation * np.sqrt(self.n_samples)
        else:
            scores = rng.standard_normal((self.n_samples, width))
        self.set_scores(scores, state.width)
        self.refresh(state)

    def refresh(self, state: State) -> None:
        """Recompute S, T and q from the current scores and intercepts. Cost O(N K² + D N K)."""
        self._widen(state)
        scores = np.ascontiguousarray(self.scores)
        self.gram = scores.T @ scores
        size = self.n_features * self._n_factors
        if len(self._room) < size:
            self._room = np.empty(2 * size)
        self.cross = self._room[:size].reshape(self.n_features, self._n_factors)
        if size:
            self.kernels.cross(self.data, scores, self.cross)
        self.power = self.data.power
        if state.intercept is not None:
            mu = state.intercept
            self.power = np.maximum(self.data.power - mu * (2.0 * self.total - mu * self.count), 0.0)
            self.cross -= mu[:, None] * self.score_sums()
        self.valid = True

    def turn(self, by: Floats, which: Ints | None = None, gram: Floats | None = None) -> None:
        """Scores → scores · ``by``, S and T following; cost O((D + N) K²).

        ``by`` is (K, K), or (K,) for a diagonal one; of the factors ``which`` alone, if given. ``gram`` is the new S
        where the caller has it.
        """
        if by.ndim == 1:
            self.scores[:] *= by
            self.cross *= by
            self.gram *= np.outer(by, by)
            return
        some = slice(None) if which is None else which
        self.scores[:, some] = self.scores[:, some] @ by
        self.cross[:, some] = self.cross[:, some] @ by
        if gram is None:
            every = by if which is None else np.eye(self._n_factors)
            if which is not None:
                every[np.ix_(which, which)] = by
            gram = every.T @ self.gram @ every
        self.gram = gram

    def keep(self, order: Ints) -> None:
        """Keep the factors ``order`` and put them in this order, S and T following."""
        self._buffer[:, : len(order)] = self.scores[:, order]
        self._n_factors = len(order)
        self.gram = np.ascontiguousarray(self.gram[np.ix_(order, order)])
        self.cross = np.ascontiguousarray(self.cross[:, order])

    def mean_scores(self) -> Floats:
        """The factors' mean scores (K,)."""
        out: Floats = self.scores.mean(axis=0)
        return out

    def shift(self, by: Floats) -> None:
        """Add ``by`` (K,) to the scores of every sample; ``refresh`` must follow."""
        self.scores[:] += by
        self.valid = False

    def draw_intercept(self, state: State, rng: Generator) -> Floats:
        """Features' means (D,) from N(mean of y_dn − g_d·x_n over observed entries, ψ_d/N_d). Cost O(D K)."""
        sums = self.score_sums()
        fitted = state.loadings @ sums[0] if len(sums) == 1 else np.einsum("dk,dk->d", state.loadings, sums)
        error = rng.standard_normal(self.n_features) * self.intercept_spread(state)
        out: Floats = (self.total - fitted) / self.count + error
        return out

    def intercept_spread(self, state: State) -> Floats:
        """Standard deviation of each feature's mean given all else (D,): √(ψ_d/N_d)."""
        return 1.0 / np.sqrt(state.noise_precision * self.count)

    def score_sums(self) -> Floats:
        """Σ_n x_n over the samples observed for each feature: (1, K) where nothing is missing, else (D, K)."""
        total: Floats = self.scores.sum(axis=0)[None, :]
        return total if self.data.absent is None else total - self.data.absent @ self.scores

    def rows(self, state: State) -> Rows:
        """The loadings' problem, for the row kernels. Raises RuntimeError where S, T and q are broken."""
        if not self.valid or len(self.gram) != state.n_factors:
            raise RuntimeError("S, T and q are not those of the scores: samples.refresh(state) comes first.")
        return Rows(
            self.cross,
            self.gram,
            self.power,
            self.scores,
            self.holes,
            state.noise_precision,
            state.precision_rows,
            state.relative,
            state.prior_offset,
        )

    def residuals(self, state: State) -> Floats:
        """Residual sums of squares of all features (D,)."""
        if state.n_factors == 0:
            return self.power
        every, none = np.arange(self.n_features), np.zeros(state.n_factors, dtype=np.bool_)
        return self.kernels.residuals(state.loadings, state.active, self.rows(state), every, none)

    def noise_evidence(self, state: State) -> tuple[Floats, Floats]:
        """How many numbers bear on a feature's noise (D,), their squares' sum: residuals, loadings, outliers."""
        number, square = state.noise_weight
        return self.count + number, self.residual + square

    def draw_noise(self, state: State, shape: float, largest: float, key: int) -> Floats:
        """Noise precisions from Gamma(shape + half the number, rate + half the squares), none above ``largest``."""
        count, square = self.noise_evidence(state)
        drawn = self.kernels.draw_gammas(*noise_posterior(shape, state.noise_rate, count, square), key)
        return np.minimum(drawn, largest)

    def draw_scores(self, state: State, key: int) -> float:
        """Draw all scores given everything else; returns Σ_n [½ aᵀΛ⁻¹a − ½ log|Λ|]. ``refresh`` must follow.

        Random numbers are keyed by the sample's number in the whole table. Cost O(D N K).
        """
        self._resize(state)
        if not state.n_factors:
            return 0.0
        return self.kernels.draw_scores(self._projection(state), self.scores, key, self.numbers)

    def note_evidence(self, noise_precision: Floats, gain: float) -> None:
        """Keep log p(Y | G, τ, μ), the scores integrated out: ``gain`` is what they add to that of noise alone."""
        base = float(self.count.dot(np.log(noise_precision)) - noise_precision.dot(self.power))
        self.log_evidence = 0.5 * (base - self.n_observed * math.log(2 * math.pi)) + gain

    def draw_clusters(self, state: State, key: int) -> None:
        """Draw the samples' clusters and these clusters' scores (Dirichlet-process scores). ``refresh`` must follow."""
        self._resize(state)
        cluster = np.asarray(self.cluster)
        self.kernels.draw_urn(self._projection(state), self.scores, cluster, state.urn_concentration, key)

    @property
    def n_clusters(self) -> int:
        """Number of clusters with a sample."""
        return len(np.unique(np.asarray(self.cluster)))

    def draw_latent(self, state: State, rng: Generator) -> None:
        """Draw values that the table only hints at, after which ``refresh`` must follow; here all of them are given.

        A class that does needs values of its own (``Observed.replace_values`` writes into those that chains share).
        """

    def carry_intercepts(self, state: State, rng: Generator) -> None:
        """Draw means given what is seen of values that go along with them ("carry"); ``refresh`` must follow."""

    def carry_loadings(self, state: State, rng: Generator) -> None:
        """Draw the loadings in use in the same way; ``refresh`` must follow."""

    def carry_scores(self, state: State, rng: Generator) -> None:
        """Draw the scores in the same way; ``refresh`` must follow."""

    def log_seen(self) -> float:
        """Log probability of what the table shows given the values, where that is a matter of chance."""
        return 0.0

    def completed(self, state: State, rng: Generator) -> Floats:
        """The table (D, N) less the features' intercepts, with its missing entries drawn from N(g_d·x_n, ψ_d)."""
        values, whole = self.data.values, self.data.missing is None
        if state.intercept is None:
            out: Floats = values.astype(np.float64, copy=not whole)
        else:
            out = values - state.intercept[:, None]
        if self.data.missing is None:
            return out
        rows, columns = np.nonzero(self.data.missing)
        noise = rng.standard_normal(len(rows)) / np.sqrt(state.noise_precision[rows])
        out[rows, columns] = np.einsum("ik,ik->i", state.loadings[rows], self.scores[columns]) + noise
        return out

    def complete_cross(self, state: State, rng: Generator) -> Floats:
        """T (D, K) with nothing missing: missing entries are drawn first and forgotten afterwards."""
        if self.complete:
            return self.cross
        return self.completed(state, rng) @ np.ascontiguousarray(self.scores)

    def sweep_marginal(self, state: State, problem: Marginal, rng: Generator) -> None:
        """Rows with the scores integrated out: see ``Kernels.sweep_marginal``. Missing entries as above."""
        self.kernels.sweep_marginal(problem, self.completed(state, rng), fresh_key(rng))

    def draw_doublets(self, state: State, problem: Doublets, factors: Ints, attempts: int, rng: Generator) -> Doubled:
        """Births and deaths of factors of two features, ``factors`` (n,) being those there are: see the kernel.

        The scores follow as the state must: without the dead, then with the new ones last. Missing entries as above.
        """
        residual = self._left(state, rng)
        scores = np.ascontiguousarray(self.scores[:, factors].T)
        found, new = self.kernels.draw_doublets(problem, residual, scores, attempts, fresh_key(rng))
        if not found.kept.all():
            self.keep(without(self._n_factors, factors[~found.kept]))
        if len(new):
            self._append(new.T)
        return found

    def try_module(self, state: State, problem: Modules, rng: Generator) -> Tried | None:
        """Try a birth or death of a factor of many features, as above: see ``kernels.modules``. None if refused."""
        found = try_module(self.kernels, problem, self._left(state, rng), self.scores, rng)
        if found is not None and found.dead is not None:
            self.keep(without(self._n_factors, np.array([found.dead])))
        elif found is not None:
            self._append(found.scores[:, None])
        return found

    def _left(self, state: State, rng: Generator) -> Floats:
        """What the factors leave of the table (D, N), its missing entries drawn."""
        fit = state.loadings @ self.scores.T
        # in place: as large as the table
        out: Floats = np.subtract(self.completed(state, rng), fit, out=fit)
        return out

    def observed_squares(self, state: State) -> tuple[Floats, Floats]:
        """Over each feature's observed samples: Σ x² (1 or D, K), and S_d g_d, its fit times the scores (D, K)."""
        power, fitted = self.gram.diagonal()[None, :], state.loadings @ self.gram
        holes = self._fit_of_holes(state)
        if holes is None:
            return power, fitted
        return power - self.data.absent @ self.scores**2, fitted - holes @ self.scores

    def log_volume(self, weight: Floats) -> Floats:
        """Σ_n log(1 + Σ_d w_dk) (K,), d over what is observed of sample n; ``weight`` is (D, K)."""
        total = weight.sum(axis=0)[None, :]
        if self.data.absent is None:
            return np.asarray(self.n_samples * np.log1p(np.maximum(total, 0.0)).sum(axis=0))
        return np.asarray(np.log1p(np.maximum(total - self.data.absent_of_samples @ weight, 0.0)).sum(axis=0))

    def add_directions(self, state: State, most: int, beyond: float, rng: Generator) -> Floats | None:
        """Add scores in the directions in which samples differ by more than noise does; returns loadings (D, new).

        Of all directions that are at right angles to the scores there are: see ``directions.beyond_noise``. At most
        ``most``; None if there are none. Cost O(D N).
        """
        taken = np.linalg.qr(np.column_stack([np.ones(self.n_samples), self.scores]))[0]
        width = min(most, (self.n_samples - taken.shape[1]) // 2)
        if width < 1:
            return None
        holes = self._fit_of_holes(state)
        if holes is not None and state.intercept is not None:
            # where values are missing they are zero
            holes.data += np.repeat(state.intercept, np.diff(holes.indptr))
        begin = rng.standard_normal((self.n_samples, width))
        found = beyond_noise(self.data, self.kernels, state.noise_precision, taken, holes, begin, beyond)
        if found is None:
            return None
        self._append(found[0])
        return found[1]

    def likeness(self, state: State, rng: Generator) -> float:
        """How alike samples are in what the factors leave of them, in units of what chance makes them.

        Mean square of D times every two samples' correlation over the D features, in units of the noise and cut off at
        ``CUT_OFF`` of these. Missing entries are drawn first and forgotten afterwards.
        """
        left = self._left(state, rng)
        left *= np.sqrt(state.noise_precision)[:, None]
        np.clip(left, -CUT_OFF, CUT_OFF, out=left)
        products = left.T @ left
        size = np.sqrt(np.maximum(products.diagonal(), np.finfo(float).tiny))
        apart = np.triu_indices(self.n_samples, 1)
        return float(self.n_features * ((products / np.outer(size, size))[apart] ** 2).mean())

    def add_own(self, state: State, rng: Generator) -> Floats:
        """Add factors that rest on one sample, for all samples without one; returns what is left there (D, new).

        As loadings: their scores are √N in their sample and zero elsewhere. Missing entries as above; ``refresh`` must
        follow, even if all samples have one.
        """
        power, size = self.scores**2, np.sqrt(self.n_samples)
        owned = power.argmax(axis=0)[power.max(axis=0, initial=0.0) > OWN * power.sum(axis=0)]
        new = np.setdiff1d(np.arange(self.n_samples), owned)
        left: Floats = self._left(state, rng)[:, new] / size
        scores = np.zeros((self.n_samples, len(new)))
        scores[new, np.arange(len(new))] = size
        self._append(scores)
        return left

    def recorded(self) -> tuple[dict[str, float], dict[str, NDArray[np.float32]]]:
        """What a draw keeps of these samples: plain numbers, and arrays with a sample axis by their names in ``Draw``.

        Scores only where they cannot be integrated out, or where values were drawn with them.
        """
        kept = {"scores": self.cluster is not None, "drawn_scores": "latent" in self.can}
        return {}, {name: self.scores.astype(np.float32) for name, there in kept.items() if there}

    def snapshot(self) -> dict[str, Any]:
        """What the next sweeps depend on; S and T are those of the scores at the end of a sweep."""
        latent = {"values": self.data.values} if "latent" in self.can else {}
        return {"scores": self.scores, "cluster": self.cluster, "log_evidence": self.log_evidence, **latent}

    def restore(self, snapshot: dict[str, Any], state: State) -> None:
        """Go on from a snapshot."""
        if "scores" not in snapshot:
            raise ValueError("The checkpoint is of another backend; go on with the one the run was begun with.")
        if "values" in snapshot:
            self.data.replace_values(snapshot["values"])
        self.set_scores(snapshot["scores"])
        self.cluster, self.log_evidence = snapshot["cluster"], snapshot["log_evidence"]
        self.refresh(state)

    def _projection(self, state: State) -> Projection:
        """The scores' problem, for the sample kernels. Cost O(D N K + D K²)."""
        return project(self.data, state.loadings, state.noise_precision, state.intercept, self.kernels)

    def _fit_of_holes(self, state: State) -> Any:
        """What the factors say of missing entries, g_d·x_n, as a sparse array (D, N); None where none is missing."""
        if self.data.absent is None:
            return None
        holes = self.data.absent.copy()
        row = np.repeat(np.arange(self.n_features), np.diff(holes.indptr))
        holes.data = np.einsum("ik,ik->i", state.loadings[row], self.scores[holes.indices])
        return holes

    def _append(self, scores: Floats) -> None:
        """Add columns (N, new), whose S and T are not known yet."""
        first, self._n_factors = self._n_factors, self._n_factors + scores.shape[1]
        if self._n_factors > self._buffer.shape[1]:
            self._buffer = widened(self._buffer[:, :first], self._n_factors)
        self._buffer[:, first : self._n_factors] = scores
        self.valid = False

    def _resize(self, state: State) -> None:
        """Room for scores of the state's factors, which are to be drawn."""
        self._widen(state)
        self._n_factors, self.valid = state.n_factors, False

    def _widen(self, state: State) -> None:
        if self._buffer.shape[1] != state.width:
            self._buffer = widened(self._buffer[:, : min(self._n_factors, state.width)], state.width)


def noise_posterior(shape: float, rate: float, count: Any, square: Any) -> tuple[Any, Any]:
    """Shape and rate of a noise precision given ``count`` residuals with sum of squares ``square``."""
    return shape + 0.5 * count, rate + 0.5 * square


def abilities(data: Observed) -> frozenset[str]:
    """What samples of a table in memory can do: see ``Samples.can``."""
    if data.offset is not None or data.elsewhere:
        return frozenset({"whole", "complete"})
    small = data.shape[0] * data.shape[1] <= SMALL
    many = data.shape[0] >= MANY * data.shape[1] and data.shape[1] >= LEAST_SAMPLES
    found = {"whole", "complete", "dense"} | ({"small"} if small else set())
    seed = small and many and data.shape[1] <= MOST_SEEDED
    return frozenset(found | ({"many features"} if many else set()) | ({"seed"} if seed else set()))


def project(
    data: Observed, loadings: Floats, noise_precision: Floats, intercept: Floats | None, kernels: Kernels
) -> Projection:
    """The problem of the samples' scores given all else; ``intercept`` is (D,), or None for zero. Cost O(D N K)."""
    projection, information = kernels.project(data, loadings, noise_precision)
    if intercept is not None:
        weighted = (intercept * noise_precision)[:, None] * loadings
        projection -= weighted.sum(axis=0)
        if data.absent is not None:
            projection += data.absent_of_samples @ weighted
    return Projection(projection, information, loadings, noise_precision, data.pattern, data.pattern_holes)
