// The loadings: genes in rows, factors in columns; names appear as soon as there is room for them.
const RED_BLUE = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"]
  .map((colour, i) => [i / 10, colour]);
const HEAT_MARGIN = { l: 24, r: 10, t: 36, b: 42 };
const heat = { order: "blocks", colour: "loading", rows: null };

function heatHeight() {
  return Math.min(Math.max(8.6 * page.heatmap.n + 60, 300), 940);
}

// For every row and factor: what to colour by, and what to say.
function heatCells() {
  const rowOf = new Int32Array(page.genes.length).fill(-1);
  heat.rows.forEach((gene, row) => { rowOf[gene] = row; });
  const spread = decode(page.heatmap.spread);
  const z = range(page.heatmap.n).map(() => new Array(nFactors).fill(null));
  const name = Array.from(heat.rows, (gene) => plain(page.genes[gene]));
  const absent = !page.entries.complete ? "not among the listed entries" : "P(in factor) below 0.05";
  const text = name.map((gene) => new Array(nFactors).fill(`<b>${gene}</b><br>${absent}`));
  for (let e = 0; e < lists.gene.length; e++) {
    const row = rowOf[lists.gene[e]];
    if (row < 0) continue;
    const k = lists.factor[e], loading = valueOf("loading", e), inclusion = inclusionOf(e);
    if (heat.colour === "inclusion") z[row][k] = inclusion;
    else if (inclusion >= 0.5) z[row][k] = heat.colour === "scaled" ? loading / (spread[lists.gene[e]] || 1) : loading;
    text[row][k] = `<b>${name[row]}</b><br>loading ${number(loading)}` + (page.dense ? "" : `<br>P(in factor) ${probability(inclusion)}`);
  }
  return { z, text };
}

function heatTicks(from, to) {
  const shown = Math.abs(to - from), height = heatHeight() - HEAT_MARGIN.t - HEAT_MARGIN.b;
  const room = height / Math.max(shown, 1);
  if (room < 7.8) return { tickvals: [], ticktext: [] };
  const first = Math.max(0, Math.ceil(Math.min(from, to))), last = Math.min(page.heatmap.n - 1, Math.floor(Math.max(from, to)));
  const rows = range(Math.max(last - first + 1, 0)).map((i) => first + i);
  return { tickvals: rows, ticktext: rows.map((row) => plain(shorten(page.genes[heat.rows[row]], NARROW ? 12 : 22))),
    tickfont: { size: Math.min(11.5, room) } };
}

function drawHeatmap() {
  heat.rows = decode(page.heatmap[heat.order]);
  const n = page.heatmap.n, { z, text } = heatCells();
  const sequential = heat.colour === "inclusion";
  const limit = heat.colour === "scaled" ? page.heatmap.scaled_limit : page.heatmap.limit;
  const trace = { type: "heatmap", z, text, x0: 0, dx: 1, y0: 0, dy: 1, hovertemplate: "factor %{x}: %{text}<extra></extra>", hoverongaps: true,
    colorscale: sequential ? BLUES : RED_BLUE, zmin: sequential ? 0 : -limit, zmax: sequential ? 1 : limit,
    xgap: nFactors <= 40 && innerWidth > 700 ? 1 : 0,
    colorbar: { thickness: 12, outlinewidth: 0, title: { text: { loading: "loading", scaled: "loading / sd", inclusion: "P" }[heat.colour], side: "top" } } };
  const room = [n - 0.5, -0.5];
  const layout = { margin: HEAT_MARGIN, plot_bgcolor: "#ececec", dragmode: TOUCH ? false : "zoom",
    xaxis: axis("factor", { ...wholeTicks(range(nFactors)), range: [-0.5, nFactors - 0.5], showgrid: false, zeroline: false }),
    yaxis: axis("", { range: room, showgrid: false, zeroline: false, ticks: "", ...heatTicks(...room) }) };
  const root = draw("plot-heatmap", [trace], layout, heatHeight(), { displayModeBar: TOUCH ? true : "hover" });
  if (!heat.ready) root.on("plotly_relayout", nameRows);
  heat.ready = true;
}

// after a zoom: names of the genes in view, if they fit
function nameRows(change) {
  if (!Object.keys(change).some((key) => key.startsWith("yaxis.range") || key === "yaxis.autorange")) return;
  const root = byId("plot-heatmap"), ticks = heatTicks(...root.layout.yaxis.range);
  Plotly.relayout(root, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext, "yaxis.tickfont.size": ticks.tickfont?.size ?? 11 });
}

function heatWords() {
  const { n, of } = page.heatmap;
  const which = n < of ? `The ${n.toLocaleString("en")} genes with the largest loadings, of ${of.toLocaleString("en")} that belong to some factor`
    : `All ${count(n, "gene")} that belong${n === 1 ? "s" : ""} to some factor`;
  const grey = page.dense ? "" : " (probability at least one half); grey cells: the gene is probably not in the factor";
  byId("heatmap-words").textContent = `${which}${grey}. Red: up with the factor, blue: down.${n > 100 ? " Gene names appear when you zoom in; the table below has every gene." : ""}`;
}

if (nFactors && page.heatmap.n) {
  figure("plot-heatmap", drawHeatmap);
  heatWords();
  for (const what of ["order", "colour"]) {
    byId(`heatmap-${what}`).addEventListener("change", (event) => { heat[what] = event.target.value; drawHeatmap(); });
  }
  byId("heatmap-reset").addEventListener("click", () =>
    Plotly.relayout("plot-heatmap", { "yaxis.range": [page.heatmap.n - 0.5, -0.5], "xaxis.range": [-0.5, nFactors - 0.5] }));
} else if (nFactors) {
  byId("heatmap-words").textContent = "No gene is in a factor with a probability of one half or more.";
}
