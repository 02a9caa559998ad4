"""Putting the page together and writing it in one step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from nsfa.arrays import Ints
from nsfa.atomic import replacing
from nsfa.display import count_bins, percent, posterior_of, symbols_of
from nsfa.draw import SUBSTANTIAL
from nsfa.enrichment import METHODS, SET_FDR, GeneSets, best_sets, enrich_both
from nsfa.posterior import Posterior
from nsfa.posterior.align import evenly
from nsfa.posterior.consensus import MINOR_GENES, MINOR_SHARE, Consensus
from nsfa.posterior.diagnostics import NOT_JUDGED, QUANTITIES
from nsfa.posterior.factors import IN_CHAIN, LEAST_AGREEMENT, LEAST_SUPPORT
from nsfa.report import loadings, pack, prose, samples

SCRIPTS = ("data.js", "figures.js", "heatmap.js", "table.js", "genes.js", "scores.js", "start.js")
TRACES = ("log_evidence", "n_substantial", "n_factors", "n_active", "covariance_norm")
MOST_TRACE_POINTS = 1000
# enriched sets in the page: the best of each factor and method
MOST_SETS = 25
TOP_GENES = 8


def write_report(
    path: str | os.PathLike[str],
    posterior: Posterior,
    *,
    annotations: Any = None,
    gene_sets: GeneSets | None = None,
    gene_names: Mapping[str, str] | None = None,
    enrichment: Any = None,
    settings: dict[str, Any] | None = None,
    title: str | None = None,
) -> None:
    """Write the report of a fit: one HTML file that needs no network and nothing beside it.

    Parameters
    ----------
    path
        The file to write. It appears complete or not at all; an older one is replaced.
    posterior
        ``est.posterior_``, or the fitted estimator itself.
    annotations : DataFrame, optional
        A row per sample in the order of the fitted table; columns of labels or numbers; the index names the samples.
    gene_sets
        Names and genes, or the path of a GMT file: adds a table of enriched sets (see ``nsfa.enrichment.enrich``).
    gene_names
        Symbols of the table's genes where these are ids: the page shows and finds both.
    enrichment : DataFrame, optional
        The table of ``nsfa.enrichment.enrich_both``, in place of ``gene_sets``, where it is there already.
    settings
        Further names and values for the table of settings, shown first; ``notes`` on the table also below the verdict.
    title
        Heading of the page.
    """
    posterior, path = posterior_of(posterior), Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of the report must exist. Got {str(path.parent)!r}; create it first.")
    frame = samples.check_annotations(annotations, len(posterior.consensus().scores), posterior.data.sample_names)
    symbols = symbols_of(posterior.consensus(), gene_names)
    if enrichment is None and gene_sets is not None:
        enrichment = enrich_both(posterior.consensus(), gene_sets, symbols)
    text = render(posterior, symbols, frame, enrichment, settings, title)
    with replacing(path) as part:
        part.write_bytes(text.encode("utf-8", "replace"))


def render(
    posterior: Posterior,
    symbols: tuple[str, ...] | None,
    frame: Any,
    enrichment: Any,
    settings: dict[str, Any] | None,
    title: str | None,
) -> str:
    """The whole page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    consensus, diagnostics = posterior.consensus(), posterior.diagnostics()
    ids = None if symbols is None else list(consensus.feature_names)
    consensus = consensus if symbols is None else replace(consensus, feature_names=symbols)
    enriched = None if enrichment is None else _enriched(enrichment)
    data = {**_data(posterior, consensus, frame), "ids": ids, "enrichment": enriched}
    page = Environment(loader=PackageLoader("nsfa.report", "parts"), autoescape=True, undefined=StrictUndefined)
    return page.get_template("page.html.j2").render(
        title=title or "Sparse factor analysis: what was found",
        verdict=prose.verdict(posterior, diagnostics),
        findings=prose.findings(posterior, consensus, samples.names_of(frame)),
        facts=prose.facts(posterior, consensus, diagnostics),
        factors=_factor_rows(consensus, enrichment),
        minor_words=f"below {percent(MINOR_SHARE)} of the variance, or {MINOR_GENES} genes or fewer",
        substantial=SUBSTANTIAL,
        agreement=LEAST_AGREEMENT,
        support=LEAST_SUPPORT,
        unjudged=NOT_JUDGED,
        measure=prose.MEASURES[posterior.spec.likelihood],
        diagnostics=diagnostics.table,
        n_chains=len(posterior.chains),
        data=data,
        least=loadings.LEAST_INCLUSION,
        settings=prose.settings_table(posterior, settings),
        notes=(settings or {}).get("notes"),
        methods=prose.methods(posterior, consensus, diagnostics),
        paper=prose.PAPER,
        software=prose.SOFTWARE,
        json=pack.to_json(data),
        style=_part("parts", "style.css"),
        plotly=_part("plotly", "plotly-cartesian.min.js"),
        script="\n".join(['(() => {\n"use strict";', *(_part("parts", name) for name in SCRIPTS), "})();"]),
    )


def _part(folder: str, name: str) -> str:
    return files("nsfa.report").joinpath(folder, name).read_text(encoding="utf-8")


def _data(posterior: Posterior, consensus: Consensus, frame: Any) -> dict[str, Any]:
    """What the figures and tables of the page are drawn from."""
    spread = loadings.spread_of(posterior)
    return {
        "genes": list(consensus.feature_names),
        "dense": posterior.spec.pattern == "dense",
        "level": consensus.level,
        "variance": np.clip(consensus.variance_explained, 0.0, 1.0).tolist(),
        "minor": consensus.minor.tolist(),
        "k": _numbers(posterior),
        "traces": _traces(posterior),
        "shared": loadings.shared_variance(posterior, spread),
        "entries": loadings.gene_lists(consensus, spread),
        "heatmap": loadings.heatmap(consensus, spread),
        "samples": samples.scores(consensus, frame),
    }


def _numbers(posterior: Posterior) -> list[dict[str, Any]] | None:
    """The posterior of the number of substantial factors and, unless it was given, of K; None for dense models."""
    if posterior.spec.pattern == "dense":
        return None
    out = [{"label": f"substantial factors ({SUBSTANTIAL} genes or more)", **_shares(posterior.n_substantial)}]
    if posterior.spec.n_components is None:
        out.append({"label": "factors of any size, K", **_shares(posterior.n_factors)})
    return out


def _shares(counts: Ints) -> dict[str, Any]:
    """Share of the draws with each number, or each few numbers, over all chains and in each."""
    bins = count_bins(counts)
    chains = [bins.shares(chain).tolist() for chain in counts]
    names = [bins.name(i) for i in range(len(bins.starts))]
    share = np.mean(chains, axis=0).tolist()
    return {"values": bins.middle.tolist(), "width": bins.width, "names": names, "share": share, "chains": chains}


def _traces(posterior: Posterior) -> list[dict[str, Any]]:
    """Traces of the quantities that vary, thinned to what a screen can show."""
    out = []
    for name in filter(posterior.has_trace, TRACES):
        trace = posterior.trace(name)
        some = evenly(trace.shape[1], MOST_TRACE_POINTS)
        if np.ptp(trace) > 0:
            shown = np.where(np.isfinite(trace), trace, np.nan)[:, some]
            chains = [pack.array(chain, "float64") for chain in shown]
            out.append({"label": QUANTITIES[name].axis, "draw": pack.indices(some, trace.shape[1]), "chains": chains})
    return out


def _factor_rows(consensus: Consensus, enrichment: Any) -> list[dict[str, Any]]:
    """The table of factors: how often each is found, how much it explains, its first genes and its best gene set."""
    out, few = [], set(consensus.outlying.tolist())
    best = {} if enrichment is None else _best(enrichment)
    for k in range(consensus.n_factors):
        core, genes = consensus.lists(k)
        found = consensus.chain_support[:, k] > IN_CHAIN
        row = {
            "number": k,
            "verdict": NOT_JUDGED if consensus.checks is None else consensus.checks.verdict[k],
            "minor": bool(consensus.minor[k]),
            "few": k in few,
            "support": float(consensus.support[k]),
            "chains": f"{found.sum()} of {len(found)}",
            "variance": float(consensus.variance_explained[k]),
            "n_core": len(core),
            "n_genes": len(genes),
            "top": [(consensus.feature_names[d], consensus.loadings[d, k] < 0) for d in consensus.first(k, TOP_GENES)],
            "best": best.get(k),
        }
        out.append(row)
    return out


def _best(enrichment: Any) -> dict[int, tuple[str, float]]:
    """Name and FDR of each factor's best gene set, of those that stand out at all."""
    best = best_sets(enrichment)
    return {int(k): (name, float(fdr)) for k, name, fdr in zip(best.index, best["gene_set"], best["fdr"], strict=True)}


def _enriched(table: Any) -> dict[str, Any]:
    """The best gene sets of every factor by either method; without an overlap a list says nothing for a set."""
    tested = [int((table["method"] == method).sum()) for method in METHODS]
    table = table[(table["overlap"] > 0) | (table["method"] == "rank")]
    table = table.groupby(["factor", "method"]).head(MOST_SETS).sort_values(["factor", "fdr", "p"], kind="stable")
    values = {name: table[name].tolist() for name in table.columns}
    # JSON has neither: infinite odds where the list lies within the set, none where either has all genes
    for name in ("odds_ratio", "score"):
        values[name] = [None if np.isnan(value) else value if value < np.inf else "inf" for value in values[name]]
    found = table[table["fdr"] <= SET_FDR]["method"]
    significant = [int((found == method).sum()) for method in METHODS]
    return {"tested": tested, "significant": significant, "notes": table.attrs.get("notes", []), "columns": values}
