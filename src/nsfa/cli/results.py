"""From a posterior to files: tables, diagnostics, figures and the report."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsfa.cli.companions import read_kept_names, read_samples
from nsfa.cli.options import ReportOptions
from nsfa.cli.output import (
    ENRICHMENT,
    FACTOR_GENES,
    GENE_SETS,
    OUTLIER_SHARES,
    OUTLIERS,
    REPORT,
    SIZE_FACTORS,
    write_csv,
    write_figures,
    write_text,
)

if TYPE_CHECKING:
    from nsfa.arrays import Ints
    from nsfa.posterior import Posterior
    from nsfa.posterior.consensus import Consensus

Symbols = tuple[str, ...] | None
"""The genes as people call them, in the order of the features, where that is not what the table calls them."""


def write_results(out: Path, posterior: Posterior, wanted: ReportOptions, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write all that is derived from the draws; returns its summary."""
    from nsfa.display import symbols_of

    # of a table in blocks the workers write the scores, in its order
    samples = read_samples(out, len(posterior.consensus().scores))
    names = read_kept_names(out, posterior.data.names)
    symbols = symbols_of(posterior.consensus(), names)
    enrichment = tested_sets(out, posterior, symbols)
    write_tables(out, posterior, samples.index, enrichment, symbols)
    if posterior.spec.noise == "robust":
        write_outliers(out, posterior, samples.index)
    if posterior.data.exposure_spread:
        write_size_factors(out, posterior, samples.index)
    if wanted.impute:
        write_imputed(out, posterior, samples.index, bool(config.get("table", {}).get("samples_in_rows")))
    poor = [str(samples.index[n]) for n in posterior.poor_samples()] if posterior.spec.noise == "robust" else []
    found = {**summary(posterior), "poor_samples": poor, "notes": config.get("input", {}).get("notes")}
    write_text(out / "diagnostics.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if wanted.report:
        write_figures(out, _drawings(posterior, samples, symbols))
        from nsfa.report import write_report

        settings = _shown(config)
        write_report(
            out / REPORT, posterior, annotations=samples, gene_names=names, enrichment=enrichment, settings=settings,
            title=wanted.title,
        )  # fmt: skip
    return found


def tested_sets(out: Path, posterior: Posterior, symbols: Symbols) -> Any:
    """All factors against the gene sets kept beside the draws, by both methods; None where there are none."""
    from nsfa.enrichment import enrich_both

    sets = out / GENE_SETS
    return enrich_both(posterior.consensus(), sets, symbols) if sets.is_file() else None


def _shown_as(consensus: Consensus, symbols: Symbols) -> Consensus:
    """The factors with the names by which people know the genes."""
    return consensus if symbols is None else replace(consensus, feature_names=symbols)


def _shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the report cannot read from the draws; of files their names, since reports are mailed."""
    source, reading, model = (config.get(name, {}) for name in ("input", "table", "model"))
    found = {
        "table": Path(source["path"]).name if "path" in source else None,
        "checksum": source.get("checksum"),
        "notes": source.get("notes"),
        **{name.replace("_", " "): value for name, value in reading.items() if value is not False and name != "genes"},
        "genes": Path(reading["genes"]).name if "genes" in reading else None,
        # counts, and zeros and ones, are not divided
        "scale": model.get("scale") if model.get("likelihood", "gaussian") == "gaussian" else None,
        "prior": model.get("prior"),
        "command": _without_folders(config.get("command")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _without_folders(command: str | None) -> str | None:
    words = shlex.split(command or "")
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words) or None


def write_tables(out: Path, posterior: Posterior, samples: Any, enrichment: Any, symbols: Symbols = None) -> None:
    """Write loadings, inclusion, scores, factors, genes and, where there are gene sets, enrichment as csv files."""
    import pandas as pd

    consensus = posterior.consensus()
    genes, factors = list(consensus.feature_names), [f"factor_{k}" for k in range(consensus.n_factors)]
    for name, values in (("loadings", consensus.loadings), ("inclusion", consensus.inclusion)):
        write_csv(out / f"{name}.csv", pd.DataFrame(values, index=genes, columns=factors), "gene")
    if not posterior.data.elsewhere:
        write_csv(out / "scores.csv", pd.DataFrame(consensus.scores, index=samples, columns=factors), "sample")
    write_csv(out / "factors.csv", factor_table(_shown_as(consensus, symbols), enrichment), "factor")
    write_csv(out / "genes.csv", gene_lists(consensus, symbols), None)
    write_factor_genes(out / FACTOR_GENES, posterior, symbols)
    if enrichment is not None:
        write_csv(out / ENRICHMENT, enrichment, None)
    else:
        # one of sets that are no longer there
        (out / ENRICHMENT).unlink(missing_ok=True)


def factor_table(consensus: Consensus, enrichment: Any) -> Any:
    """The summary of the factors, with the gene set that stands out most in each, if any, where sets were tested."""
    names = {"n_core": "core_genes", "n_features": "genes_at_5_percent_fdr", "top_features": "top_genes"}
    table = consensus.summary().rename(columns=names)
    if enrichment is None:
        return table
    from nsfa.enrichment import best_sets

    columns = {"gene_set": "best_gene_set", "method": "best_gene_set_method", "fdr": "best_gene_set_fdr"}
    return table.join(best_sets(enrichment)[list(columns)].rename(columns=columns))


def gene_lists(consensus: Consensus, symbols: Symbols = None) -> Any:
    """The genes of every factor at 5 % FDR, a row each: its core, most certain first, then the others."""
    import pandas as pd

    both = [consensus.lists(k) for k in range(consensus.n_factors)]
    lists = [np.append(core, every[~np.isin(every, core)]) for core, every in both]
    gene = np.concatenate([*lists, np.zeros(0, np.int64)]).astype(np.int64)
    factor = np.repeat(np.arange(consensus.n_factors), [len(genes) for genes in lists])
    columns = {
        "factor": factor,
        "gene": [consensus.feature_names[d] for d in gene],
        **({} if symbols is None else {"symbol": [symbols[d] for d in gene]}),
        "core": [i < len(core) for (core, _), genes in zip(both, lists, strict=True) for i in range(len(genes))],
    }
    parts = {"loading": "loadings", **{name: name for name in ("lower", "upper", "relevance", "inclusion")}}
    return pd.DataFrame(columns | {name: getattr(consensus, part)[gene, factor] for name, part in parts.items()})


def write_factor_genes(path: Path, posterior: Posterior, symbols: Symbols = None) -> None:
    """Write the factors as gene sets: first the core of each, then all genes; lists without a gene are left out."""
    from nsfa.posterior.shares import EFFECT

    consensus = _shown_as(posterior.consensus(), symbols)
    kinds = {"core": (EFFECT, f"the factor explains at least {EFFECT:.0%} of the gene's variance".replace("%", " %"))}
    if posterior.spec.pattern != "dense":
        kinds["all"] = 0, "the gene's loading is not zero"
    lines = []
    for kind, (effect, meaning) in kinds.items():
        for k in range(consensus.n_factors):
            # a tab or a line break within a name would be read as the next gene
            genes = [" ".join(consensus.feature_names[d].split()) for d in consensus.genes(k, effect=effect)]
            # several probes may have one symbol
            genes = list(dict.fromkeys(genes))
            if genes:
                lines.append("\t".join([f"factor_{k}_{kind}", f"{meaning}, at 5 % FDR", *genes]) + "\n")
    write_text(path, "".join(lines))


def write_outliers(out: Path, posterior: Posterior, samples: Any) -> None:
    """Write ``outliers.csv``: entries that are outliers with a probability of a half or more, the surest first.

    And ``outlier_shares.csv``: what share of each sample's entries are outliers.
    """
    import pandas as pd

    shares = np.asarray(posterior.outlier_shares())
    write_csv(out / OUTLIER_SHARES, pd.DataFrame({"outliers": shares}, index=samples), "sample")
    table = posterior.outliers()
    table["sample"] = [samples[n] for n in table["sample"]]
    table = table.drop(columns=["feature", "sample_name"], errors="ignore").rename(columns={"name": "gene"})
    write_csv(out / OUTLIERS, table[["gene", *table.columns.drop("gene")]], None)


def write_size_factors(out: Path, posterior: Posterior, samples: Any) -> None:
    """Write ``size_factors.csv``: how much of each sample was counted, where that was inferred."""
    import pandas as pd

    sizes = np.asarray(posterior.size_factors())
    write_csv(out / SIZE_FACTORS, pd.DataFrame({"size_factor": sizes}, index=samples), "sample")


def write_imputed(out: Path, posterior: Posterior, samples: Any, samples_in_rows: bool) -> None:
    """Write ``imputed.csv``: the table, the way round it was read, with its holes filled by posterior means."""
    import pandas as pd

    from nsfa.posterior.predict import fitted_table

    filled = posterior.impute(fitted_table(posterior.data))
    frame = pd.DataFrame(filled, index=samples, columns=list(posterior.data.names))
    # more digits than measurements have, fewer than centring and scaling leave
    write_csv(out / "imputed.csv", *((frame, "sample") if samples_in_rows else (frame.T, "gene")), digits=10)


def summary(posterior: Posterior) -> dict[str, Any]:
    """What was found and whether to believe it, as plain values."""
    diagnostics, consensus = posterior.diagnostics(), posterior.consensus()
    return {
        "n_substantial": consensus.n_substantial,
        "n_substantial_posterior": _shares(posterior.n_substantial),
        "n_shared_posterior": _shares(posterior.n_shared),
        "n_outlying": len(consensus.outlying),
        "share_of_outliers": float(posterior.trace("outliers").mean()) if posterior.spec.noise == "robust" else None,
        "likelihood": posterior.spec.likelihood,
        "n_components": consensus.n_factors,
        "n_components_posterior": _shares(posterior.n_factors),
        "converged": diagnostics.converged,
        "partly_converged": diagnostics.partly_converged,
        "n_settled": diagnostics.settled,
        "verdict": diagnostics.verdict,
        "advice": None if diagnostics.advice is None else diagnostics.advice._asdict(),
        "finished": posterior.finished,
        "preview": posterior.length.preview,
        "chains": len(posterior.chains),
        "draws_per_chain": len(posterior.chains[0]),
        "seed": posterior.seed,
        "quantities": [
            {key: _finite(value) for key, value in vars(diagnostic).items()} for diagnostic in diagnostics.table
        ],
        "moves": [move._asdict() for move in diagnostics.moves],
        "factors": _factors(consensus),
    }


def _shares(counts: Ints) -> dict[str, float]:
    """The share of the draws with each number."""
    from nsfa.display import count_shares

    return {str(k): round(float(share), 6) for k, share in zip(*count_shares(counts), strict=True)}


def _factors(consensus: Consensus) -> list[dict[str, Any]]:
    """The verdict on every factor, and what it rests on."""
    table = consensus.summary().drop(columns=["n_features", "top_features"]).reset_index()
    return [{key: _finite(value) for key, value in row.items()} for row in table.to_dict("records")]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _drawings(posterior: Posterior, samples: Any, symbols: Symbols) -> dict[str, Callable[[], Any]]:
    """The usual figures, by name."""
    from nsfa import pl

    consensus = _shown_as(posterior.consensus(), symbols)
    groups = _groups(samples)
    pair = (0, 1) if consensus.n_factors > 1 else None
    return {
        "n_components": lambda: pl.n_components(posterior),
        "traces": lambda: pl.traces(posterior),
        "chain_agreement": lambda: pl.chain_agreement(posterior),
        "loadings": lambda: pl.loadings(consensus),
        "variance_explained": lambda: pl.variance_explained(consensus),
        "inclusion": lambda: pl.inclusion_curve(consensus),
        **({"scores": lambda: pl.scores(consensus, factors=pair, groups=groups)} if len(consensus.scores) else {}),
    }


def _groups(samples: Any) -> Any:
    """The first annotation that sorts the samples into a few groups, or None."""
    for name in range(samples.shape[1]):
        column = samples.iloc[:, name]
        if 1 < column.nunique() <= min(12, len(column) // 2):
            # categories have an order
            return column.array if hasattr(column, "cat") else column.to_numpy()
    return None
