// Scores of the samples: two factors against each other, one factor by annotation, and which goes with which.
const ORDER = "order";

const scores = {
  start() {
    const { samples } = page;
    this.packed = decode(samples.scores);
    this.notes = samples.annotations.map((note) => ({ ...note, codes: note.codes && decode(note.codes), values: note.values && decode(note.values) }));
    this.names = samples.names.map(plain);
    this.across = byId("score-x");
    this.up = byId("score-y");
    this.colour = byId("score-colour");
    for (const select of [this.across, this.up]) fillFactors(select, (k) => `factor ${k} (${percent(page.variance[k])})`);
    addOption(this.up, ORDER, "order of the samples");
    this.choose();
    this.notes.forEach((note, i) => addOption(this.colour, i, note.name));
    if (this.colour) addOption(this.colour, "", "none");
    for (const control of [this.across, this.up, this.colour]) control?.addEventListener("change", () => this.draw());
    byId("score-download").addEventListener("click", () => this.save());
    figure("plot-scores", () => this.drawPair());
    figure("plot-levels", () => this.drawLevels());
    if (this.notes.length) figure("plot-explained", () => this.drawExplained());
  },

  // begin with the two factors that go best with the first annotation, or the first two
  choose() {
    const share = page.samples.explained[0] ?? page.variance;
    const best = range(nFactors).sort((a, b) => share[b] - share[a]);
    this.across.value = best[0];
    this.up.value = best[1] ?? ORDER;
  },

  draw() {
    this.drawPair();
    this.drawLevels();
  },

  values(which) {
    if (which === ORDER) return range(page.samples.n);
    const k = Number(which), n = page.samples.n;
    return Array.from(this.packed.subarray(k * n, (k + 1) * n), (code) => code * page.samples.step[k]);
  },

  note() {
    return this.colour && this.colour.value !== "" ? this.notes[Number(this.colour.value)] : null;
  },

  style(note, level) {
    const rest = ["unlabelled", "all other groups"].includes(note.levels[level]);
    return { color: rest ? GREY : COLOURS[level % COLOURS.length], symbol: rest ? "x" : SYMBOLS[level % SYMBOLS.length] };
  },

  // one trace per level, so that the legend names them; one with a colour scale for numbers
  traces(note, x, y, marks) {
    const size = page.samples.n > 1000 ? 5 : 7.5, hovertemplate = "%{text}<extra></extra>";
    const pick = (values, own) => own.map((i) => values[i]);
    if (!note || note.values) {
      const shade = note ? { color: Array.from(note.values), colorscale: "Cividis", showscale: true,
        colorbar: { thickness: 12, outlinewidth: 0, title: { text: plain(shorten(note.name)), side: "right" } } } : { color: BLUE };
      return [{ x, y, text: marks, hovertemplate, marker: { size, opacity: 0.8, ...shade } }];
    }
    return shortenAll(note.levels, NARROW ? 10 : 28).map((level, i) => {
      const own = range(page.samples.n).filter((s) => note.codes[s] === i);
      return { x: pick(x, own), y: pick(y, own), text: pick(marks, own), hovertemplate, name: `${plain(level)} (${own.length})`,
        marker: { size, opacity: 0.8, ...this.style(note, i) } };
    });
  },

  label(i, note) {
    if (!note) return this.names[i];
    const value = note.values ? number(note.values[i], 4) : plain(note.levels[note.codes[i]]);
    return `${this.names[i]}<br>${plain(note.name)}: ${value}`;
  },

  drawPair() {
    const note = this.note(), x = this.values(this.across.value), y = this.values(this.up.value);
    const marks = x.map((value, i) => `${this.label(i, note)}<br>${number(value)}, ${number(y[i])}`);
    const traces = this.traces(note, x, y, marks).map((trace) => ({ type: "scatter", mode: "markers", ...trace }));
    const upward = this.up.value === ORDER ? "sample" : `score on factor ${this.up.value}`;
    const named = Boolean(note?.levels);
    const rows = named ? this.legendRows(traces) : 0;
    draw("plot-scores", traces, { dragmode: TOUCH ? false : "zoom", xaxis: axis(`score on factor ${this.across.value}`), yaxis: axis(upward),
      showlegend: named, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11.5 }, maxheight: 20 * rows + 20 },
      margin: { l: 48, r: 10, t: 10 + 20 * rows, b: 42 } }, Math.max(400, 340 + 20 * rows));
  },

  // lines of the legend: its columns are all as wide as the longest name
  legendRows(traces) {
    const longest = Math.max(...traces.map(({ name }) => name.length)), room = byId("plot-scores").clientWidth - 58;
    return Math.ceil(traces.length / Math.max(1, Math.floor(room / (46 + 6.2 * longest))));
  },

  drawLevels() {
    const note = this.note(), k = this.across.value, x = this.values(k), words = byId("level-words");
    if (!note) {
      words.textContent = `How the scores on factor ${k} are spread.`;
      draw("plot-levels", [{ type: "histogram", x, marker: { color: "#5fa2cc" }, hovertemplate: "%{x}: %{y}<extra></extra>" }],
        { xaxis: axis(`score on factor ${k}`), yaxis: axis("samples"), bargap: 0.04 }, 400);
      return;
    }
    const share = page.samples.explained[Number(this.colour.value)][Number(k)], rate = page.samples.fdr[Number(this.colour.value)][Number(k)];
    words.textContent = `${note.name} explains ${percent(share)} of the variance of the scores on factor ${k} (adjusted R²; FDR ${number(rate, 2)}).`
      + (note.levels ? " Boxes: median and quartiles." : "");
    if (note.levels) this.drawBoxes(note, x, k);
    else {
      const marks = x.map((value, i) => this.label(i, note));
      draw("plot-levels", [{ type: "scatter", mode: "markers", x, y: Array.from(note.values), text: marks,
        hovertemplate: "%{text}<extra></extra>", marker: { color: BLUE, size: 6, opacity: 0.7 } }],
      { xaxis: axis(`score on factor ${k}`), yaxis: axis(plain(shorten(note.name, 40))) }, 400);
    }
  },

  drawBoxes(note, x, k) {
    const names = shortenAll(note.levels, NARROW ? 14 : 24).map(plain);
    const traces = note.levels.map((level, i) => {
      const own = range(page.samples.n).filter((s) => note.codes[s] === i);
      const { color, symbol } = this.style(note, i);
      return { type: "box", orientation: "h", x: own.map((s) => x[s]), y: own.map(() => i), boxpoints: page.samples.n <= 2000 ? "all" : "outliers",
        jitter: 0.5, pointpos: 0, marker: { color, symbol, size: 5, opacity: 0.6 }, line: { color: "#1a1f26", width: 1.3 }, fillcolor: "rgba(255,255,255,0)",
        text: own.map((s) => this.label(s, note)), hoverinfo: "text+x" };
    });
    draw("plot-levels", traces, { xaxis: axis(`score on factor ${k}`, { zeroline: true }),
      yaxis: axis("", { tickvals: range(names.length), ticktext: names, range: [names.length - 0.5, -0.5], zeroline: false, showgrid: false }) },
    Math.max(400, 24 * names.length + 80));
  },

  drawExplained() {
    const { explained, fdr } = page.samples, names = this.notes.map((note) => plain(shorten(note.name, NARROW ? 14 : 28)));
    const text = explained.map((row, i) => row.map((share, k) => `${names[i]}, factor ${k}: ${percent(share)}<br>FDR ${number(fdr[i][k], 2)}`));
    const sure = fdr.flatMap((row, i) => range(nFactors).filter((k) => row[k] <= 0.05).map((k) => [k, i]));
    const root = draw("plot-explained", [{ type: "heatmap", z: explained.map((row) => row.map((share) => 100 * share)), text, x0: 0, dx: 1, y0: 0, dy: 1,
      hovertemplate: "%{text}<extra></extra>", colorscale: BLUES, zmin: 0, zmax: 100, xgap: 1, ygap: 1,
      colorbar: { thickness: 12, outlinewidth: 0, ticksuffix: " %", nticks: 3 } },
    { type: "scatter", mode: "markers", x: sure.map(([k]) => k), y: sure.map(([, i]) => i), hoverinfo: "skip",
      marker: { size: 5, color: "#fff", line: { color: "#1a1f26", width: 1 } } }],
    { xaxis: axis("factor", { ...wholeTicks(range(nFactors)), fixedrange: true, showgrid: false, zeroline: false }),
      yaxis: axis("", { tickvals: range(names.length), ticktext: names, range: [names.length - 0.5, -0.5], fixedrange: true, showgrid: false, zeroline: false }) },
    Math.max(130, 30 * names.length + 70));
    root.on("plotly_click", ({ points }) => {
      const [row, k] = points[0].pointNumber;
      this.colour.value = row;
      this.across.value = k;
      if (this.up.value === String(k)) this.up.value = nFactors > 1 ? Number(k === 0) : ORDER;
      this.draw();
      byId("scores").scrollIntoView();
    });
  },

  save() {
    const { samples } = page, columns = range(nFactors).map((k) => this.values(k));
    const header = ["sample", ...columns.map((_, k) => `factor_${k}`)];
    download("scores.csv", [header, ...samples.names.map((name, i) => [name, ...columns.map((column) => column[i])])]);
  },
};
