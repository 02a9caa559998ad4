// Figures: what they share, and those without controls.
const BLUE = "#0072B2";
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"];
const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down"];
const GREY = "#8c8c8c";
const FONT = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: "#1a1f26" };
const TOUCH = matchMedia("(pointer: coarse)").matches;
// fingers scroll the page; only the heatmap, which needs zooming, has buttons for them
const CONFIG = { displaylogo: false, showTips: false, responsive: true, displayModeBar: TOUCH ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { scale: 2 } };

// figures wait here until they are drawn, in this order
const waiting = [];
const sized = new Map();

function figure(id, make) {
  if (byId(id)) waiting.push({ id, make });
}

function axis(title, extra = {}) {
  return { title: { text: title, standoff: 8 }, gridcolor: "#e6eaef", zerolinecolor: "#c4ccd6", linecolor: "#8a95a3",
    ticks: "outside", ticklen: 4, tickcolor: "#8a95a3", automargin: true, ...extra };
}

// Wide figures print as wide as an A4 page, others half as wide.
function draw(id, traces, layout, height, config = {}) {
  const root = byId(id);
  const base = { font: FONT, height, margin: { l: 48, r: 10, t: 10, b: 42 }, hovermode: "closest", showlegend: false,
    dragmode: false, paper_bgcolor: "#fff", plot_bgcolor: "#fff", hoverlabel: { font: { ...FONT, color: "#fff" } } };
  sized.set(id, height);
  Plotly.react(root, traces, { ...base, ...layout }, { ...CONFIG, ...config });
  return root;
}

const NARROW = innerWidth < 500;
const BLUES = ["#f7f9fb", "#c6dbef", "#6baed6", "#2171b5", "#08306b"].map((colour, i) => [i / 4, colour]);
const wholeTicks = (values) => (values.length <= (NARROW ? 8 : 16) ? { tickvals: values } : { tickformat: "d", tickangle: 0, nticks: 10 });

// the first number on top, the others in smaller panels below it
figure("plot-k", () => {
  const n = page.k.length, traces = [], layout = { margin: { l: 48, r: 10, t: 10, b: 42 } };
  page.k.forEach(({ label, values, width, names, share, chains }, i) => {
    const at = i === 0 ? "" : i + 1, axes = { xaxis: `x${at}`, yaxis: `y${at}` };
    traces.push({ type: "bar", x: values, y: share.map((s) => 100 * s), text: names, textposition: "none", width: 0.8 * width,
      marker: { color: i ? "#b9c7d3" : "#5fa2cc" }, ...axes, hovertemplate: "%{text}: %{y:.1f} % of draws<extra></extra>" });
    if (chains.length > 1) {
      chains.forEach((own, chain) => traces.push({ type: "scatter", mode: "markers", x: values, text: names, ...axes,
        y: own.map((s) => (s > 0 ? 100 * s : null)), marker: { color: "#fff", size: i || values.length > 16 ? 5 : 8, line: { color: "#000", width: i ? 0.8 : 1.2 } },
        hovertemplate: `chain ${chain}, %{text}: %{y:.1f} %<extra></extra>` }));
    }
    const ends = [values[0] - 0.8 * width, values[values.length - 1] + 0.8 * width], steps = width > 1 ? `${NARROW ? "<br>" : ", "}in steps of ${width}` : "";
    const ticks = width > 1 ? { tickformat: "d", nticks: 10 } : wholeTicks(values);
    layout[`xaxis${at}`] = axis(`${NARROW ? "" : "number of "}${label}${steps}`, { ...ticks, range: ends, fixedrange: true, showgrid: false, anchor: `y${at}` });
    layout[`yaxis${at}`] = axis(i ? "" : "share of draws (%)", { rangemode: "tozero", fixedrange: true, nticks: i ? 3 : 6, anchor: `x${at}`,
      domain: n === 1 ? [0, 1] : i ? [0, 0.26] : [0.48, 1] });
  });
  draw("plot-k", traces, layout, n === 1 ? 270 : 360);
});

figure("plot-variance", () => {
  const factors = range(nFactors);
  draw("plot-variance", [{ type: "bar", x: factors, y: page.variance.map((v) => 100 * v),
    marker: { color: factors.map((k) => (minor.includes(k) ? "#b9c0c7" : "#5fa2cc")) },
    hovertemplate: "factor %{x}: %{y:.2f} % of the variance<extra></extra>" }],
  { xaxis: axis("factor", { ...wholeTicks(factors), fixedrange: true, showgrid: false, zeroline: false }),
    yaxis: axis("variance explained (%)", { rangemode: "tozero", fixedrange: true }) }, page.k?.length > 1 ? 360 : 270);
});

figure("plot-shared", () => {
  const { counts, edges } = page.shared;
  const middle = counts.map((_, i) => 50 * (edges[i] + edges[i + 1]));
  const words = counts.map((n, i) => `${(100 * edges[i]).toFixed(0)} to ${(100 * edges[i + 1]).toFixed(0)} %: ${count(n, "gene")}`);
  draw("plot-shared", [{ type: "bar", x: middle, y: counts, width: 4.6, marker: { color: "#5fa2cc" }, hovertext: words, hoverinfo: "text" }],
    { xaxis: axis("variance explained (%)", { range: [0, 100], fixedrange: true }),
      yaxis: axis("genes", { rangemode: "tozero", fixedrange: true }) }, 250);
});

figure("plot-traces", () => {
  const n = page.traces.length;
  const traces = [];
  const layout = { showlegend: (page.traces[0]?.chains.length ?? 0) > 1, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    margin: { l: 64, r: 10, t: 34, b: 42 } };
  page.traces.forEach((trace, i) => {
    const at = i === 0 ? "" : i + 1;
    const x = Array.from(decode(trace.draw));
    trace.chains.forEach((packed, chain) => traces.push({ type: "scatter", mode: "lines", x, y: Array.from(decode(packed)),
      xaxis: "x", yaxis: `y${at}`, name: `chain ${chain}`, legendgroup: chain, showlegend: i === 0,
      line: { width: 1, color: COLOURS[chain % COLOURS.length] },
      hovertemplate: `chain ${chain}, draw %{x}: %{y:,.6~g}<extra></extra>` }));
    layout[`yaxis${at}`] = axis(trace.label, { domain: [1 - (i + 0.9) / n, 1 - i / n], fixedrange: true, tickformat: ",~r", nticks: 4, zeroline: false });
  });
  layout.xaxis = axis("kept draw", { fixedrange: true, anchor: `y${n > 1 ? n : ""}`, zeroline: false });
  draw("plot-traces", traces, layout, 90 + 140 * Math.max(n, 1));
});
