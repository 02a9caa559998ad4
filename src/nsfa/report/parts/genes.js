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
    ...(page.ids ? [{ title: "id", value: (e) => page.ids[lists.gene[e]], text: (e) => page.ids[lists.gene[e]] }] : []),
    { title: "loading", number: true, value: (e) => valueOf("loading", e), text: (e) => number(valueOf("loading", e)) },
    { title: `${Math.round(100 * page.level)} % interval`, number: true, value: (e) => valueOf("lower", e),
      text: (e) => `${number(valueOf("lower", e))} to ${number(valueOf("upper", e))}` },
  ];
  const inclusion = { title: "P(in factor)", number: true, value: inclusionOf, text: (e) => probability(inclusionOf(e)), share: inclusionOf };
  return [...columns,
    { title: "P(≥ 5 %)", number: true, value: relevanceOf, text: (e) => probability(relevanceOf(e)), share: relevanceOf },
    ...(page.dense ? [] : [inclusion]),
    { title: "FDR", number: true, value: (e) => genes.fdr(e), text: (e) => genes.fdr(e).toFixed(3) }];
}

const genes = {
  start() {
    this.names = page.genes.map((name, gene) => (page.ids ? `${name} ${page.ids[gene]}` : name).toLowerCase());
    this.factor = byId("gene-factor");
    this.list = byId("gene-list");
    this.rate = byId("gene-rate");
    this.search = byId("gene-search");
    const own = (k) => count(lists.core.cuts["0.05"][k], "core gene");
    fillFactors(this.factor, (k) => `factor ${k} (${percent(page.variance[k])} of variance, ${own(k)})`);
    addOption(this.factor, ALL, "all factors");
    Object.keys(lists.cuts).forEach((rate) => addOption(this.rate, rate, `${100 * rate} %`));
    addOption(this.rate, "1", "no limit");
    this.rate.value = "0.05";
    this.table = new PagedTable(byId("gene-table"), geneColumns(), "Genes");
    for (const control of [this.factor, this.list, this.rate, this.search]) control.addEventListener("input", () => this.update());
    byId("gene-download").addEventListener("click", () => this.save(this.factor.value === ALL ? "all-factors" : `factor-${this.factor.value}`, this.table.order));
    byId("all-download").addEventListener("click", () => this.save("all-genes", this.coreFirst()));
    document.querySelectorAll(".factor-table [data-factor]").forEach((button) => button.addEventListener("click", () => this.open(button.dataset.factor)));
    this.update();
  },

  // entries of one factor at the chosen rate, of its core or of all its genes
  entries(k, core = this.list.value === "core") {
    const { start, cuts, entry } = core ? lists.core : lists, cut = cuts[this.rate.value];
    return range(cut ? cut[k] : start[k + 1] - start[k]).map((i) => (core ? entry[start[k] + i] : start[k] + i));
  },

  coreFirst() {
    const all = range(lists.gene.length), key = (e) => 2 * lists.factor[e] + 1 - lists.isCore[e];
    const core = (e) => (lists.isCore[e] ? lists.coreFdr[e] : 0);
    return all.sort((a, b) => key(a) - key(b) || core(a) - core(b) || a - b);
  },

  fdr(e) {
    return this.list.value === "core" ? lists.coreFdr[e] : lists.fdr[e];
  },

  update() {
    const match = matcher(this.search.value), hit = match && this.names.map(match);
    const found = (k) => (hit ? this.entries(k).filter((e) => hit[lists.gene[e]]) : this.entries(k));
    const all = this.factor.value === ALL;
    const rows = all ? range(nFactors).flatMap(found) : found(Number(this.factor.value));
    const where = all ? "all factors" : `factor ${this.factor.value}`, core = this.list.value === "core";
    const rate = this.rate.value !== "1" ? ` at a false-discovery rate of ${100 * this.rate.value} %` : "";
    byId("gene-table").classList.toggle("one-factor", !all);
    this.table.setRows(rows, `${core ? "Core genes" : "All genes"} of ${where}${rate}`);
    const words = byId("gene-words"), what = `${core ? "core " : ""}${all ? "row" : "gene"}`;
    words.textContent = `${count(rows.length, what)}${hit ? " found" : ""} in ${where}${rate}. `;
    if (hit) this.elsewhere(words, hit, found);
    if (core) this.weaker(words, hit || this.names.map(() => true), all ? range(nFactors) : [Number(this.factor.value)]);
  },

  // how much more the full lists have of it, and a way there
  weaker(words, hit, factors) {
    const core = new Set(factors.flatMap((k) => this.entries(k, true)));
    const more = factors.flatMap((k) => this.entries(k, false)).filter((e) => hit[lists.gene[e]] && !core.has(e)).length;
    if (!more) return;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "link", textContent: `show all genes (${more.toLocaleString("en")} more, weaker)` });
    button.addEventListener("click", () => { this.list.value = "all"; this.update(); });
    words.append(" ", button);
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
    // as in genes.csv: the gene as the table names it, its symbol beside it
    const called = (e) => (page.ids ? [page.ids[lists.gene[e]], page.genes[lists.gene[e]]] : [page.genes[lists.gene[e]]]);
    const header = ["factor", "gene", ...(page.ids ? ["symbol"] : []), "core", "loading", "lower", "upper", "relevance", "core_fdr", ...(page.dense ? [] : ["inclusion_probability", "fdr"])];
    const row = (e) => [lists.factor[e], ...called(e), Boolean(lists.isCore[e]), valueOf("loading", e), valueOf("lower", e), valueOf("upper", e),
      relevanceOf(e), Number.isNaN(lists.coreFdr[e]) ? "" : lists.coreFdr[e], ...(page.dense ? [] : [inclusionOf(e), lists.fdr[e]])];
    download(`${name}.csv`, [header, ...entries.map(row)]);
  },
};

const sets = {
  start() {
    const { columns } = page.enrichment;
    const column = (name) => (row) => columns[name][row];
    const small = (name) => (row) => number(columns[name][row], 2);
    const byRank = (row) => columns.method[row] === "rank";
    const effect = (row) => columns[byRank(row) ? "score" : "odds_ratio"][row];
    const size = (row) => ({ inf: Infinity, null: -1 })[effect(row)] ?? effect(row);
    const shown = [
      { title: "factor", number: true, value: column("factor"), text: column("factor") },
      { title: "gene set", value: column("gene_set"), text: column("gene_set") },
      { title: "shared", number: true, value: column("overlap"), text: (row) => `${columns.overlap[row]} of ${columns.set_size[row]}` },
      { title: "test", number: true, value: size,
        text: (row) => `${byRank(row) ? "ranks: score" : "core: odds"} ${({ inf: "∞", null: "–" })[effect(row)] ?? number(effect(row))}` },
      { title: "direction", value: column("direction"), text: (row) => ({ "+": "up", "-": "down", both: "both" })[columns.direction[row]] },
      { title: "p", number: true, value: column("p"), text: small("p") },
      { title: "FDR", number: true, value: column("fdr"), text: small("fdr") },
      { title: "shared genes", long: true, value: column("genes"), text: (row) => shorten(columns.genes[row].replaceAll(",", ", "), NARROW ? 40 : 160) },
    ];
    this.table = new PagedTable(byId("set-table"), shown, "Gene sets, the best of each factor first", 15);
    addOption(byId("set-factor"), ALL, "all factors");
    fillFactors(byId("set-factor"), (k) => `factor ${k}`);
    for (const id of ["set-factor", "set-method", "set-search"]) byId(id).addEventListener("input", () => this.update());
    byId("set-download").addEventListener("click", () => {
      const names = Object.keys(columns);
      download("gene-sets.csv", [names, ...this.table.order.map((row) => names.map((name) => columns[name][row]))]);
    });
    this.update();
  },

  update() {
    const { columns } = page.enrichment, factor = byId("set-factor").value, match = matcher(byId("set-search").value);
    const method = byId("set-method").value;
    this.table.setRows(range(columns.factor.length).filter((row) => (factor === ALL || columns.factor[row] === Number(factor))
      && (method === ALL || columns.method[row] === method)
      && (!match || match(columns.gene_set[row].toLowerCase()) || match(columns.genes[row].toLowerCase()))));
  },
};
