"""Fit a model to the cells of an AnnData object, project others, and test its factors against gene sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from nsfa.arrays import Bools
from nsfa.enrichment import GeneSets
from nsfa.enrichment import enrich as enrich_consensus
from nsfa.estimators import ESTIMATORS
from nsfa.posterior import Posterior
from nsfa.readers.lists import symbol_in
from nsfa.readers.notes import LEAST, binary, counts, look
from nsfa.tl.record import fitted_genes, params_of, stored, write, write_scores, writing

if TYPE_CHECKING:
    from anndata import AnnData

# Cells with genes unknown to them are projected in dense blocks of at most so many entries.
_BLOCK = 4_000_000


def nsfa(
    adata: AnnData,
    *,
    layer: str | None = None,
    use_highly_variable: bool | None = None,
    key_added: str = "nsfa",
    model: str = "nsfa",
    copy: bool = False,
    return_model: bool = False,
    **settings: Any,
) -> Any:
    """Fit a factor model to cells × genes and write its consensus factors into ``adata``.

    Parameters
    ----------
    adata
        Sparse values stay sparse; NaN in dense ones is missing. Of an object backed by a file the values are read, and
        what is written stays in memory. A view becomes an object of its own.
    layer
        The layer to fit; None is ``adata.X``.
    use_highly_variable
        Fit the genes marked in ``adata.var["highly_variable"]`` only. None: if there is such a column.
    key_added
        The stem of all names written.
    model
        "nsfa", or one with a fixed number of factors: "sfa", "fa", "afa", "fok", "bfrm" (they need n_components).
    copy
        Write into a copy of ``adata`` and return it.
    return_model
        Return the fitted estimator, which ``transform`` needs; it is not stored in ``adata``. With ``copy``, both.
    settings
        Those of the estimator: chains, tune, draws, random_state, ...

    Writes
    ------
    obsm["X_nsfa"] : (n_obs, K) posterior mean scores, of unit variance.
    obsm["X_nsfa_weighted"] : the same times the square root of the share of the variance that the factor explains, so
        that a factor counts for as much as it explains: what neighbours, clusterings and embeddings should use.
    varm["nsfa_loadings"], varm["nsfa_pip"], varm["nsfa_relevance"] : (n_vars, K) posterior mean loadings, and the
        probabilities that a loading is active and that the factor explains at least 5 % of the gene's variance. NaN for
        genes that were not fitted: nothing is known of them, which is not the same as zero.
    obs["nsfa_size_factor"] : (n_obs,) with likelihood="counts", how much of each cell was counted, where that was
        inferred: posterior means, 1 being the usual.
    uns["nsfa"] : params, version, seed; n_components (values of K and their shares of the draws), n_shared and
        n_substantial (the same for factors of two and of five genes or more); support, chain_support,
        variance_explained and minor of the factors; factors (the verdict on each, with its agreement, rhat and ess);
        diagnostics with the verdict on all.
    """
    _check(adata)
    if copy and adata.isbacked:
        raise ValueError("adata must be in memory to be copied. Got one backed by a file; use adata.to_memory().")
    estimator = _estimator(model, settings)
    table, used = _table(adata, layer), _genes(adata, use_highly_variable)
    names = tuple(adata.var_names.astype(str)[used])
    if getattr(estimator, "likelihood", "") == "gaussian":
        _note_raw(table, layer)
    estimator.fit(_named(table if used.all() else table[:, used], names))
    # a sparse matrix has no names of its own
    cells = tuple(adata.obs_names.astype(str))
    data = replace(estimator.posterior_.data, feature_names=names, sample_names=cells, layer=layer)
    estimator.posterior_ = replace(estimator.posterior_, data=data)
    params = params_of(estimator) | {"model": model, "use_highly_variable": not used.all()}
    target = adata.copy() if copy else adata
    write(target, estimator.posterior_, used, key_added, params if layer is None else params | {"layer": layer})
    wanted = ([target] if copy else []) + ([estimator] if return_model else [])
    return tuple(wanted) if len(wanted) > 1 else next(iter(wanted), None)


def transform(
    adata: AnnData, model: Any, *, layer: str | None = None, key_added: str = "nsfa", return_std: bool = False
) -> None:
    """Project cells onto the factors of a fitted model: obsm["X_nsfa"] (n_obs, K), posterior mean scores.

    Also obsm["X_nsfa_weighted"], as in ``nsfa``. Genes are matched by name. Those of the model that ``adata`` lacks
    count as missing, its other genes are ignored.

    Parameters
    ----------
    adata
        The cells, in the same units as those of the fit.
    model
        A fitted estimator, as of ``nsfa(..., return_model=True)``, or its posterior.
    layer
        The layer with their values, "X" for ``adata.X``. None: that of the fit, of which a warning reminds if it was
        not ``adata.X``.
    key_added
        As in ``nsfa``.
    return_std
        Also write the scores' posterior standard deviations, obsm["X_nsfa_std"].
    """
    _check(adata)
    posterior = getattr(model, "posterior_", model)
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"model must be a fitted estimator or its posterior. Got {type(model).__name__}; "
            "use model = nsfa.tl.nsfa(adata, return_model=True)."
        )
    layer = _same_layer(adata, layer, posterior.data.layer)
    blocks = _blocks(_table(adata, layer), _match(adata, posterior))
    parts = [posterior.transform(block, return_std=True) for block in blocks]
    mean, deviation = (np.concatenate(part) for part in zip(*parts, strict=True))
    with writing(adata):
        write_scores(adata, key_added, mean, posterior.consensus())
        if return_std:
            adata.obsm[f"X_{key_added}_std"] = deviation


def enrich(
    adata: AnnData,
    gene_sets: GeneSets,
    *,
    key: str = "nsfa",
    key_added: str = "enrichment",
    gene_symbols: str | None = None,
    **settings: Any,
) -> Any:
    """Test the stored factors against gene sets; the fitted genes are the universe.

    Needs nothing but what ``nsfa`` wrote under ``key``. Returns a pandas DataFrame and stores it in
    ``uns[key][key_added]``; see ``nsfa.enrichment.enrich`` for its columns and for the settings. ``gene_symbols`` is
    the column of ``adata.var`` that names the genes as the sets do, where ``var_names`` are ids.
    """
    _check(adata)
    consensus = stored(adata, key)
    if gene_symbols is not None:
        settings["symbols"] = _symbols(adata, gene_symbols, fitted_genes(adata, key))
    table = enrich_consensus(consensus, gene_sets, **settings)
    with writing(adata):
        adata.uns[key] = {**adata.uns[key], key_added: table}
    return table


def _check(adata: Any) -> None:
    try:
        from anndata import AnnData
    except ImportError:
        raise ImportError("nsfa.tl needs anndata: pip install 'nsfa[anndata]'.") from None
    if not isinstance(adata, AnnData):
        raise TypeError(f"adata must be an AnnData object. Got {type(adata).__name__}; fit tables with nsfa.NSFA.")


def _estimator(model: str, settings: dict[str, Any]) -> Any:
    """The unfitted estimator, or one sentence about a setting it does not have."""
    if model not in ESTIMATORS:
        raise ValueError(f"model must be one of {', '.join(map(repr, ESTIMATORS))}. Got {model!r}.")
    kind = ESTIMATORS[model]
    known = kind().get_params()
    for name in settings:
        if name not in known:
            hint = "; it infers the number of factors, use model='sfa' to fix it" if name == "n_components" else ""
            raise ValueError(f"Settings of {model} must be among {', '.join(known)}. Got {name!r}{hint}.")
    return kind(**settings)


def _layers(adata: AnnData) -> str:
    """The layers there are, in words."""
    # anndata 0.13 lists X among the layers, as None
    return ", ".join(repr(name) for name in adata.layers if name is not None) or "no layers"


def _same_layer(adata: AnnData, layer: str | None, fitted: str | None) -> str | None:
    """Where the values are to be read, None for X: where the user says, else in the layer that was ``fitted``."""
    if layer is not None:
        return None if layer == "X" and layer not in adata.layers else layer
    if fitted is not None and fitted not in adata.layers:
        raise ValueError(
            f"adata must have the layer {fitted!r}, which the model was fitted to. There are: {_layers(adata)}; name "
            "one with such values as layer, or adata.X as layer='X'."
        )
    if fitted is not None:
        warnings.warn(
            f"The model was fitted to the layer {fitted!r}: that of adata is taken. Name it as layer to silence this.",
            UserWarning,
            stacklevel=3,
        )
    return fitted


def _table(adata: AnnData, layer: str | None) -> Any:
    """Cells × genes: X or a layer."""
    if layer is not None and layer not in adata.layers:
        known = _layers(adata)
        raise ValueError(f"layer must be None or a key of adata.layers. Got {layer!r}; there are: {known}.")
    table = adata.X if layer is None else adata.layers[layer]
    if table is None:
        raise ValueError("adata.X must hold the data. Got None; name a layer.")
    return table if sp.issparse(table) else _read(table)


def _read(table: Any) -> Any:
    """A dense array as it is; of a table in a file its values, sparse ones as a sparse array."""
    return table.to_memory() if hasattr(table, "to_memory") else np.asarray(table)


def _note_raw(table: Any, layer: str | None) -> None:
    """Warn of values that are counts, or zeros and ones, about to be taken for measurements."""
    seen = look(table)
    kind = "binary" if binary(seen) else "counts" if counts(seen, log2=False) else None
    if kind is None or seen.size < LEAST:
        return
    what = "zeros and ones" if kind == "binary" else "whole numbers, as counts are"
    other = "" if kind == "binary" else ", or normalise them and take logarithms"
    where = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    warnings.warn(f"{where} holds {what}: use likelihood={kind!r}{other}.", UserWarning, stacklevel=3)


def _genes(adata: AnnData, use_highly_variable: bool | None) -> Bools:
    """Which genes to fit (n_vars,)."""
    column = adata.var.get("highly_variable")
    marked = column is not None and column.dtype == np.bool_
    if use_highly_variable is None:
        use_highly_variable = marked
    if not use_highly_variable:
        return np.ones(adata.n_vars, dtype=np.bool_)
    if not marked:
        given = "no such column" if column is None else f"dtype {column.dtype}"
        raise ValueError(
            f"adata.var['highly_variable'] must be boolean. Got {given}; mark such genes first, "
            "or use use_highly_variable=False."
        )
    return np.asarray(column, dtype=np.bool_)


def _named(table: Any, names: tuple[str, ...]) -> Any:
    """A dense table with its genes' names, so that messages can use them; a sparse one as it is."""
    if sp.issparse(table):
        return table
    import pandas as pd

    return pd.DataFrame(table, columns=list(names))


def _match(adata: AnnData, posterior: Posterior) -> Any:
    """Where each gene of the model is in ``adata`` (n_features,); -1 where it is not."""
    names = posterior.data.feature_names
    if names is None:
        raise ValueError(
            "model must know its genes' names. Got one fitted to a table without them; "
            "fit it with nsfa.tl.nsfa or to a DataFrame."
        )
    here = adata.var_names.astype(str)
    for owner, genes in (("adata", here), ("model", here.__class__(names))):
        if not genes.is_unique:
            twin = genes[genes.duplicated()][0]
            raise ValueError(f"Genes must have different names to be matched. Got {twin!r} twice in the {owner}.")
    where = here.get_indexer(list(names))
    if (where < 0).all():
        raise ValueError(
            f"adata must have genes in common with the model. Got none: {here[0]!r}, ... here and {names[0]!r}, ... "
            "in the model; use the same kind of names."
        )
    return where


def _blocks(table: Any, where: Any) -> Iterator[Any]:
    """The table with the model's genes as columns, NaN for those it lacks; sparse and whole if it lacks none."""
    known = where >= 0
    if known.all():
        yield table[:, where]
        return
    size = max(_BLOCK // len(where), 1)
    for start in range(0, table.shape[0], size):
        part = table[start : start + size][:, where[known]]
        block = np.full((part.shape[0], len(where)), np.nan)
        block[:, known] = part.toarray() if sp.issparse(part) else part
        yield block


def _symbols(adata: AnnData, column: str, used: Bools) -> list[str]:
    """Second names of the fitted genes, or the first where there is none."""
    if column not in adata.var:
        has = ", ".join(map(repr, adata.var.columns)) or "no columns"
        raise ValueError(f"gene_symbols must be a column of adata.var. Got {column!r}; there are: {has}.")
    names = zip(adata.var_names[used].astype(str), adata.var[column][used].astype(object), strict=True)
    return [symbol_in(symbol) or name if isinstance(symbol, str) else name for name, symbol in names]
