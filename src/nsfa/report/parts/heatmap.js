// The loadings: genes in rows, factors in columns; names appear as soon as there is room for them.
const RED_BLUE = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"]
  .map((colour, i) => [i / 10, colour]);
const HEAT_MARGIN = { l: 24, r: 10, t: 36, b: 42 };
const heat = { order: "blocks", colour: "loading", rows: null, factors: major };

function heatHeight() {
  return Math.min(Math.max(8.6 * heat.rows.length + 60, 300), 940);
}

// Genes that are probably in one of the factors shown, in the chosen order.
function heatRows() {
  const shown = new Uint8Array(nFactors), wanted = new Uint8Array(page.genes.length);
  heat.factors.forEach((k) => { shown[k] = 1; });
  for (let e = 0; e < lists.gene.length; e++) if (shown[lists.factor[e]] && inclusionOf(e) >= 0.5) wanted[lists.gene[e]] = 1;
  return decode(page.heatmap[heat.order]).filter((gene) => wanted[gene]);
}

// For every row and factor shown: what to colour by, and what to say.
function heatCells() {
  const rowOf = new Int32Array(page.genes.length).fill(-1), columnOf = new Int32Array(nFactors).fill(-1);
  heat.rows.forEach((gene, row) => { rowOf[gene] = row; });
  heat.factors.forEach((k, column) => { columnOf[k] = column; });
  const z = range(heat.rows.length).map(() => new Array(heat.factors.length).fill(null));
  const name = Array.from(heat.rows, (gene) => plain(page.genes[gene]) + (page.ids ? `</b> (${plain(page.ids[gene])})<b>` : ""));
  const absent = !page.entries.complete ? "not among the listed entries" : "P(in factor) below 0.05";
  const text = name.map((gene) => heat.factors.map((k) => `factor ${k}: <b>${gene}</b><br>${absent}`));
  for (let e = 0; e < lists.gene.length; e++) {
    const row = rowOf[lists.gene[e]], k = lists.factor[e], column = columnOf[k];
    if (row < 0 || column < 0) continue;
    const loading = valueOf("loading", e), inclusion = inclusionOf(e);
    if (heat.colour === "inclusion") z[row][column] = inclusion;
    else if (inclusion >= 0.5) z[row][column] = heat.colour === "scaled" ? loading / (spreads[lists.gene[e]] || 1) : loading;
    text[row][column] = `factor ${k}: <b>${name[row]}</b><br>loading ${number(loading)}` + (page.dense ? "" : `<br>P(in factor) ${probability(inclusion)}`);
  }
  return { z, text };
}

function heatTicks(from, to) {
  const shown = Math.abs(to - from), height = heatHeight() - HEAT_MARGIN.t - HEAT_MARGIN.b;
  const room = height / Math.max(shown, 1);
  if (room < 7.8) return { tickvals: [], ticktext: [] };
  const first = Math.max(0, Math.ceil(Math.min(from, to))), last = Math.min(heat.rows.length - 1, Math.floor(Math.max(from, to)));
  const rows = range(Math.max(last - first + 1, 0)).map((i) => first + i);
  return { tickvals: rows, ticktext: rows.map((row) => plain(shorten(page.genes[heat.rows[row]], NARROW ? 12 : 22))),
    tickfont: { size: Math.min(11.5, room) } };
}

function drawHeatmap() {
  heat.rows = heatRows();
  heatWords();
  const n = heat.rows.length, factors = heat.factors, { z, text } = heatCells();
  const sequential = heat.colour === "inclusion";
  const limit = heat.colour === "scaled" ? page.heatmap.scaled_limit : page.heatmap.limit;
  const trace = { type: "heatmap", z, text, x0: 0, dx: 1, y0: 0, dy: 1, hovertemplate: "%{text}<extra></extra>", hoverongaps: true,
    colorscale: sequential ? BLUES : RED_BLUE, zmin: sequential ? 0 : -limit, zmax: sequential ? 1 : limit,
    xgap: factors.length <= 40 && innerWidth > 700 ? 1 : 0,
    colorbar: { thickness: 12, outlinewidth: 0, title: { text: { loading: "loading", scaled: "loading / sd", inclusion: "P" }[heat.colour], side: "top" } } };
  const room = [n - 0.5, -0.5];
  const layout = { margin: HEAT_MARGIN, plot_bgcolor: "#ececec", dragmode: TOUCH ? false : "zoom",
    xaxis: axis("factor", { ...factorTicks(factors), range: [-0.5, factors.length - 0.5], showgrid: false, zeroline: false }),
    yaxis: axis("", { range: room, showgrid: false, zeroline: false, ticks: "", ...heatTicks(...room) }) };
  const root = draw("plot-heatmap", [trace], layout, heatHeight(), { displayModeBar: TOUCH ? true : "hover" });
  if (!heat.ready) root.on("plotly_relayout", nameRows);
  heat.ready = true;
}

// columns are places; their labels, as many as there is room for, the factors' numbers
function factorTicks(factors) {
  const step = Math.ceil(factors.length / (NARROW ? 8 : 32)), shown = range(factors.length).filter((i) => i % step === 0);
  return { tickvals: shown, ticktext: shown.map((i) => String(factors[i])), tickangle: 0 };
}

// after a zoom: names of the genes in view, if they fit
function nameRows(change) {
  if (!Object.keys(change).some((key) => key.startsWith("yaxis.range") || key === "yaxis.autorange")) return;
  const root = byId("plot-heatmap"), ticks = heatTicks(...root.layout.yaxis.range);
  Plotly.relayout(root, { "yaxis.tickvals": ticks.tickvals, "yaxis.ticktext": ticks.ticktext, "yaxis.tickfont.size": ticks.tickfont?.size ?? 11 });
}

function heatWords() {
  const n = heat.rows.length, { of } = page.heatmap, hidden = nFactors - heat.factors.length;
  const which = page.heatmap.n < of ? `${n.toLocaleString("en")} genes with the largest loadings, of ${of.toLocaleString("en")} that belong to some factor`
    : `All ${count(n, "gene")} that belong${n === 1 ? "s" : ""} to ${hidden ? "one of these factors" : "some factor"}`;
  const grey = page.dense ? "" : " (probability at least one half); grey cells: the gene is probably not in the factor";
  byId("heatmap-words").textContent = `${which}${grey}.${hidden ? ` ${count(hidden, "minor factor")} ${hidden === 1 ? "is" : "are"} left out.` : ""}`
    + ` Red: up with the factor, blue: down.${n > 100 ? " Gene names appear when you zoom in; the table below has every gene." : ""}`;
}

if (nFactors && page.heatmap.n) {
  figure("plot-heatmap", drawHeatmap);
  for (const what of ["order", "colour"]) {
    byId(`heatmap-${what}`).addEventListener("change", (event) => { heat[what] = event.target.value; drawHeatmap(); });
  }
  byId("heatmap-minor")?.addEventListener("change", (event) => { heat.factors = event.target.checked ? range(nFactors) : major; drawHeatmap(); });
  byId("heatmap-reset").addEventListener("click", () =>
    Plotly.relayout("plot-heatmap", { "yaxis.range": [heat.rows.length - 0.5, -0.5], "xaxis.range": [-0.5, heat.factors.length - 0.5] }));
} else if (nFactors) {
  byId("heatmap-words").textContent = "No gene is in a factor with a probability of one half or more.";
}
