"""What ``adata`` holds of a fit, written and read back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.arrays import Bools, Floats, Ints
from nsfa.display import count_shares
from nsfa.posterior import Posterior
from nsfa.posterior.consensus import Consensus
from nsfa.version import __version__

if TYPE_CHECKING:
    from anndata import AnnData

# What of the consensus is kept per gene, and under which names.
_PARTS = {"loadings": "loadings", "pip": "inclusion", "relevance": "relevance"}


def params_of(estimator: Any) -> dict[str, Any]:
    """The estimator's settings as HDF5 can hold them: no None, objects in words. The seed is stored apart."""
    given = estimator.get_params() | estimator.posterior_.resolved
    given = {k: v for k, v in given.items() if v is not None and k != "random_state"}
    return {k: v if isinstance(v, (str, bool, int, float, np.generic)) else repr(v) for k, v in given.items()}


def write(adata: AnnData, posterior: Posterior, used: Bools, key: str, params: dict[str, Any]) -> None:
    """Write the consensus factors and the record of their fit; NaN for genes that were not ``used``."""
    consensus = posterior.consensus()
    wide = np.full((len(_PARTS), adata.n_vars, consensus.n_factors), np.nan)
    wide[:, used] = [getattr(consensus, part) for part in _PARTS.values()]
    with writing(adata):
        write_scores(adata, key, consensus.scores, consensus)
        for name, values in zip(_PARTS, wide, strict=True):
            adata.varm[f"{key}_{name}"] = values
        adata.uns[key] = _record(posterior, consensus, params)
        _write_sizes(adata, key, posterior)


def _write_sizes(adata: AnnData, key: str, posterior: Posterior) -> None:
    """Write size factors where they were inferred; else those of an earlier fit go."""
    name = f"{key}_size_factor"
    if posterior.data.exposure_spread:
        adata.obs[name] = np.asarray(posterior.size_factors())
    elif name in adata.obs:
        del adata.obs[name]


def write_scores(adata: AnnData, key: str, scores: Floats, consensus: Consensus) -> None:
    """Write scores, plain and weighted."""
    adata.obsm[f"X_{key}"] = scores
    # neighbours of unit-variance scores would weigh the least factor like the first
    adata.obsm[f"X_{key}_weighted"] = scores * np.sqrt(consensus.variance_explained)


def _record(posterior: Posterior, consensus: Consensus, params: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping of a fit, in types that a h5ad file gives back as they were."""

    def shares(counts: Ints) -> dict[str, Any]:
        return dict(zip(("values", "share"), count_shares(counts), strict=True))

    found = posterior.diagnostics()
    columns = ("mean", "rhat", "ess_bulk", "ess_tail")
    diagnostics: dict[str, Any] = {name: np.array([getattr(d, name) for d in found.table]) for name in columns}
    diagnostics["quantity"] = np.array([d.quantity for d in found.table], dtype=object)
    return {
        "params": params,
        "version": __version__,
        # HDF5 has no integers beyond 64 bits
        "seed": posterior.seed if posterior.seed < 2**63 else str(posterior.seed),
        "n_components": shares(posterior.n_factors),
        "n_shared": shares(posterior.n_shared),
        "n_substantial": shares(posterior.n_substantial),
        "support": consensus.support,
        "chain_support": consensus.chain_support,
        "variance_explained": consensus.variance_explained,
        "minor": consensus.minor,
        "factors": _checks(consensus),
        "diagnostics": diagnostics
        | {"verdict": found.verdict, "converged": found.converged, "partly_converged": found.partly_converged},
    }


def _checks(consensus: Consensus) -> dict[str, Any]:
    """How far the chains agree on each factor."""
    if consensus.checks is None:
        return {}
    return vars(consensus.checks) | {"verdict": np.array(consensus.checks.verdict, dtype=object)}


@contextmanager
def writing(adata: AnnData) -> Iterator[None]:
    """Where ``adata`` is written to; a view then becomes an object of its own, as documented, without a warning."""
    from anndata import ImplicitModificationWarning

    with warnings.catch_warnings():
        if adata.is_view:
            warnings.simplefilter("ignore", ImplicitModificationWarning)
        yield


def fitted_genes(adata: AnnData, key: str) -> Bools:
    """Which genes were fitted (n_vars,)."""
    out: Bools = ~np.isnan(np.asarray(adata.varm[f"{key}_loadings"], dtype=float)).any(axis=1)
    return out


def stored(adata: AnnData, key: str) -> Consensus:
    """The consensus factors that ``nsfa`` wrote under ``key``. What it does not write (intervals) is NaN."""
    absent = [f"{key}_{name}" for name in _PARTS if f"{key}_{name}" not in adata.varm]
    if key not in adata.uns or absent:
        given = "none" if key not in adata.uns or len(absent) == len(_PARTS) else f"no varm[{absent[0]!r}]"
        raise ValueError(f"adata must hold factors under {key!r}. Got {given}; run nsfa.tl.nsfa(adata) first.")
    kept = {part: np.asarray(adata.varm[f"{key}_{name}"], dtype=float) for name, part in _PARTS.items()}
    used = fitted_genes(adata, key)
    kept = {part: values[used] for part, values in kept.items()}
    unknown: Floats = np.full_like(kept["loadings"], np.nan)
    scores = np.asarray(adata.obsm[f"X_{key}"], dtype=float)
    return Consensus(
        loadings=kept["loadings"],
        lower=unknown,
        upper=unknown,
        level=np.nan,
        inclusion=kept["inclusion"],
        relevance=kept["relevance"],
        support=adata.uns[key]["support"],
        chain_support=adata.uns[key]["chain_support"],
        variance_explained=adata.uns[key]["variance_explained"],
        scores=scores,
        scores_std=np.full_like(scores, np.nan),
        feature_names=tuple(adata.var_names.astype(str)[used]),
    )
