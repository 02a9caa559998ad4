// The genes of each factor, and the gene sets: choose, search, sort, download.
const ALL = "all";

// Which names a search means: any of the texts between commas, or all of it where a name holds a comma itself.
function matcher(text) {
  const whole = text.trim().toLowerCase();
  const parts = whole.split(/[,;\n]/).map((part) => part.trim()).filter(Boolean);
  return parts.length ? (name) => name.includes(whole) || parts.some((part) => name.includes(part)) : null;
}

function fillFactors(select, text) {
  major.forEach((k) => addOption(select, k, text(k)));
  if (minor.length) {
    const group = document.createElement("optgroup");
    group.label = "minor factors";
    minor.forEach((k) => addOption(group, k, text(k)));
    select.append(group);
  }
}

// each gene's place in the alphabet, GENE2 before GENE10; made when first asked for
let places = null;
function alphabetical() {
  if (places) return places;
  const { compare } = new Intl.Collator("en", { numeric: true });
  places = new Uint32Array(page.genes.length);
  range(page.genes.length).sort((a, b) => compare(page.genes[a], page.genes[b])).forEach((gene, i) => { places[gene] = i; });
  return places;
}

function geneColumns() {
  const columns = [
    { title: "gene", value: (e) => alphabetical()[lists.gene[e]], text: (e) => page.genes[lists.gene[e]] },
    { title: "factor", number: true, value: (e) => lists.factor[e], text: (e) => lists.factor[e] },
    { title: "loading", number: true, value: (e) => valueOf("loading", e), text: (e) => number(valueOf("loading", e)) },
    { title: `${Math.round(100 * page.level)} % interval`, number: true, value: (e) => valueOf("lower", e),
      text: (e) => `${number(valueOf("lower", e))} to ${number(valueOf("upper", e))}` },
  ];
  if (page.dense) return columns;
  return [...columns,
    { title: "P(in factor)", number: true, value: inclusionOf, text: (e) => probability(inclusionOf(e)), share: inclusionOf },
    { title: "FDR", number: true, value: (e) => lists.fdr[e], text: (e) => lists.fdr[e].toFixed(3) }];
}

const genes = {
  start() {
    this.names = page.genes.map((name) => name.toLowerCase());
    this.factor = byId("gene-factor");
    this.rate = byId("gene-rate");
    this.search = byId("gene-search");
    const own = (k) => (page.dense ? "" : `, ${count(lists.cuts["0.05"][k], "gene")}`);
    fillFactors(this.factor, (k) => `factor ${k} (${percent(page.variance[k])} of variance${own(k)})`);
    addOption(this.factor, ALL, "all factors");
    if (this.rate) {
      Object.keys(lists.cuts).forEach((rate) => addOption(this.rate, rate, `${100 * rate} %`));
      addOption(this.rate, "1", "no limit");
      this.rate.value = "0.05";
    }
    this.table = new PagedTable(byId("gene-table"), geneColumns(), "Genes");
    for (const control of [this.factor, this.rate, this.search]) control?.addEventListener("input", () => this.update());
    byId("gene-download").addEventListener("click", () => this.save(this.factor.value === ALL ? "all-factors" : `factor-${this.factor.value}`, this.table.order));
    byId("all-download").addEventListener("click", () => this.save("all-genes", range(lists.gene.length)));
    document.querySelectorAll(".factor-table [data-factor]").forEach((button) => button.addEventListener("click", () => this.open(button.dataset.factor)));
    this.update();
  },

  // entries of one factor at the chosen rate
  entries(k) {
    const cut = lists.cuts[this.rate?.value], from = lists.start[k];
    return range(cut ? cut[k] : lists.start[k + 1] - from).map((i) => from + i);
  },

  update() {
    const match = matcher(this.search.value), hit = match && this.names.map(match);
    const found = (k) => (hit ? this.entries(k).filter((e) => hit[lists.gene[e]]) : this.entries(k));
    const all = this.factor.value === ALL;
    const rows = all ? range(nFactors).flatMap(found) : found(Number(this.factor.value));
    const where = all ? "all factors" : `factor ${this.factor.value}`;
    const rate = this.rate && this.rate.value !== "1" ? ` at a false-discovery rate of ${100 * this.rate.value} %` : "";
    byId("gene-table").classList.toggle("one-factor", !all);
    this.table.setRows(rows, `Genes of ${where}${rate}`);
    const words = byId("gene-words");
    words.textContent = `${all ? count(rows.length, "row") : count(rows.length, "gene")}${hit ? " found" : ""} in ${where}${rate}. `;
    if (hit) this.elsewhere(words, hit, found);
  },

  // which other factors contain what was searched for
  elsewhere(words, hit, found) {
    const named = hit.filter(Boolean).length;
    if (!named) { words.append("No gene of the table has such a name."); return; }
    const others = range(nFactors).filter((k) => String(k) !== this.factor.value && found(k).length);
    if (this.factor.value === ALL) {
      if (!others.length) words.append(`${count(named, "gene")} of the table ${named === 1 ? "has" : "have"} such a name, in no factor.`);
      return;
    }
    words.append(others.length ? "Also in factor " : "In no other factor.");
    others.slice(0, 12).forEach((k) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "link", textContent: k });
      button.addEventListener("click", () => { this.factor.value = k; this.update(); });
      words.append(button, " ");
    });
    if (others.length > 12) words.append(`and ${others.length - 12} more: choose all factors.`);
  },

  open(k) {
    this.factor.value = k;
    this.search.value = "";
    this.update();
    byId("genes").scrollIntoView();
  },

  save(name, entries) {
    const header = ["factor", "gene", "loading", "lower", "upper", ...(page.dense ? [] : ["inclusion_probability", "fdr"])];
    const row = (e) => [lists.factor[e], page.genes[lists.gene[e]], valueOf("loading", e), valueOf("lower", e), valueOf("upper", e),
      ...(page.dense ? [] : [inclusionOf(e), lists.fdr[e]])];
    download(`${name}.csv`, [header, ...entries.map(row)]);
  },
};

const sets = {
  start() {
    const { columns, effect } = page.enrichment;
    const column = (name) => (row) => columns[name][row];
    const small = (name) => (row) => number(columns[name][row], 2);
    const shown = [
      { title: "factor", number: true, value: column("factor"), text: column("factor") },
      { title: "gene set", value: column("gene_set"), text: column("gene_set") },
      { title: "shared", number: true, value: column("overlap"), text: (row) => `${columns.overlap[row]} of ${columns.set_size[row]}` },
      { title: effect.replace("_", " "), number: true, value: (row) => columns[effect][row] ?? Infinity,
        text: (row) => (columns[effect][row] === null ? "∞" : number(columns[effect][row])) },
      { title: "direction", value: column("direction"), text: (row) => ({ "+": "up", "-": "down", both: "both" })[columns.direction[row]] },
      { title: "p", number: true, value: column("p"), text: small("p") },
      { title: "FDR", number: true, value: column("fdr"), text: small("fdr") },
      { title: "shared genes", long: true, value: column("genes"), text: (row) => shorten(columns.genes[row].replaceAll(",", ", "), NARROW ? 40 : 160) },
    ];
    this.table = new PagedTable(byId("set-table"), shown, "Gene sets, the best of each factor first", 15);
    addOption(byId("set-factor"), ALL, "all factors");
    fillFactors(byId("set-factor"), (k) => `factor ${k}`);
    for (const id of ["set-factor", "set-search"]) byId(id).addEventListener("input", () => this.update());
    byId("set-download").addEventListener("click", () => {
      const names = Object.keys(columns);
      download("gene-sets.csv", [names, ...this.table.order.map((row) => names.map((name) => columns[name][row] ?? "inf"))]);
    });
    this.update();
  },

  update() {
    const { columns } = page.enrichment, factor = byId("set-factor").value, match = matcher(byId("set-search").value);
    this.table.setRows(range(columns.factor.length).filter((row) => (factor === ALL || columns.factor[row] === Number(factor))
      && (!match || match(columns.gene_set[row].toLowerCase()) || match(columns.genes[row].toLowerCase()))));
  },
};
