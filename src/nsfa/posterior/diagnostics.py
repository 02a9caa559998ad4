"""Have the chains converged? R-hat and effective sample sizes (Vehtari et al. 2021) on label-free quantities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

from nsfa.kernels import Floats

RHAT_LIMIT = 1.05
ESS_LIMIT = 100.0
PREVIEW = "Preview: too short to tell whether the chains agree; a full fit does."


@dataclass(frozen=True)
class Diagnostic:
    """One quantity: its mean, R-hat, and effective sample sizes of its bulk and its tails."""

    quantity: str
    mean: float
    rhat: float
    ess_bulk: float
    ess_tail: float


@dataclass(frozen=True)
class Diagnostics:
    """A table of diagnostics, and the verdict in words."""

    table: tuple[Diagnostic, ...]
    converged: bool
    verdict: str

    def of_preview(self) -> Diagnostics:
        """The same table, without a judgement."""
        return replace(self, converged=False, verdict=PREVIEW)

    def __str__(self) -> str:
        head = f"{'quantity':<16}{'mean':>12}{'R-hat':>8}{'ESS bulk':>10}{'ESS tail':>10}"
        rows = [
            f"{d.quantity:<16}{d.mean:>12.4g}{d.rhat:>8.3f}{d.ess_bulk:>10.0f}{d.ess_tail:>10.0f}" for d in self.table
        ]
        return "\n".join([head, *rows, self.verdict])


def diagnose(traces: dict[str, Floats], words: dict[str, str] | None = None) -> Diagnostics:
    """Diagnose named traces, each (chains, draws); ``words`` says more of some in the verdict."""
    table = tuple(
        Diagnostic(name, float(trace.mean()), split_rhat(trace), ess_bulk(trace), ess_tail(trace))
        for name, trace in traces.items()
    )
    return Diagnostics(table, *_verdict(table, next(iter(traces.values())).shape, words or {}))


def _verdict(table: tuple[Diagnostic, ...], shape: tuple[int, ...], words: dict[str, str]) -> tuple[bool, str]:
    n_chains, n_draws = shape
    if n_draws < 4:
        return False, f"Not assessed: {n_draws} draw(s) per chain are too few; draw at least 100."
    broken = [d.quantity for d in table if not np.isfinite(d.mean)]
    if broken:
        return (
            False,
            f"Not converged: {broken[0]} is not finite; check the table for copied features or extreme values.",
        )
    worst = max(table, key=lambda d: d.rhat)
    thinnest = min(table, key=lambda d: d.ess_bulk)
    what, which = (words.get(d.quantity, d.quantity) for d in (worst, thinnest))
    chains = f"{n_chains} chains agree" if n_chains > 1 else "1 chain agrees with itself (run several to be sure)"
    if worst.rhat > RHAT_LIMIT:
        advice = "run longer (more tune and draws)"
        return False, f"Not converged: {what} has R-hat {worst.rhat:.2f} (limit {RHAT_LIMIT}); {advice}."
    if thinnest.ess_bulk < ESS_LIMIT:
        few = f"{which} has {thinnest.ess_bulk:.0f} effective draws (at least {ESS_LIMIT:.0f} wanted)"
        return False, f"Not converged: {few}; draw more."
    return True, f"Converged: {chains}, R-hat ≤ {worst.rhat:.3f}, at least {thinnest.ess_bulk:.0f} effective draws."


def split_rhat(trace: Floats) -> float:
    """Rank-normalised split R-hat: the larger of that of the values and that of their distance from the median."""
    halves = _split(trace)
    if _constant(halves):
        return 1.0
    folded = np.abs(halves - np.median(halves))
    # of two values, each in half of the draws, all distances are the same
    parts = [halves] if _constant(folded) else [halves, folded]
    return max(_rhat(_rank_normalise(part)) for part in parts)


def ess_bulk(trace: Floats) -> float:
    """Effective sample size of the rank-normalised values."""
    halves = _split(trace)
    return float(trace.size) if _constant(halves) else _ess(_rank_normalise(halves))


def ess_tail(trace: Floats) -> float:
    """The smaller effective sample size of the 5 % and 95 % quantiles."""
    halves = _split(trace)
    sizes = []
    for level in (0.05, 0.95):
        below = (halves <= np.quantile(halves, level)).astype(float)
        sizes.append(float(trace.size) if _constant(below) else _ess(below))
    return min(sizes)


def _split(trace: Floats) -> Floats:
    trace = np.atleast_2d(np.asarray(trace, dtype=float))
    half = trace.shape[1] // 2
    return np.concatenate([trace[:, :half], trace[:, trace.shape[1] - half :]]) if half else trace


def _constant(x: Floats) -> bool:
    return bool(x.size == 0 or x.shape[1] < 2 or np.ptp(x) == 0)


def _rank_normalise(x: Floats) -> Floats:
    out: Floats = ndtri((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))
    return out


def _rhat(x: Floats) -> float:
    n = x.shape[1]
    between, within = n * x.mean(axis=1).var(ddof=1), x.var(axis=1, ddof=1).mean()
    return float(np.sqrt((between / within + n - 1) / n)) if within > 0 else float("inf")


def _ess(x: Floats) -> float:
    """Effective sample size over chains by Geyer's initial monotone sequence."""
    n_chains, n = x.shape
    centred = x - x.mean(axis=1, keepdims=True)
    spectrum = rfft(centred, next_fast_len(2 * n), axis=1)
    autocovariance = irfft(spectrum * np.conj(spectrum), next_fast_len(2 * n), axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    total = within * (n - 1) / n + (x.mean(axis=1).var(ddof=1) if n_chains > 1 else 0.0)
    rho = 1 - (within - autocovariance * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    positive = np.concatenate([pairs, [-1.0]])
    pairs = np.minimum.accumulate(positive[: int(np.argmax(positive < 0))])
    time = max(2 * pairs.sum() - 1, 1 / np.log10(n_chains * n)) if len(pairs) else 1.0
    return float(n_chains * n / time)
