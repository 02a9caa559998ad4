// What the page holds, decoded; and the small helpers that all parts use.
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, f8: Float64Array };

function decode({ kind, base64 }) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[kind](bytes.buffer);
}

const range = (n) => Array.from({ length: n }, (_, i) => i);
const page = JSON.parse(document.getElementById("data").textContent);
const nFactors = page.variance.length;
// all factors may be minor; then none is folded away
const minor = range(nFactors).filter((k) => page.minor[k] && !page.minor.every(Boolean));
const major = range(nFactors).filter((k) => !minor.includes(k));
const byId = (id) => document.getElementById(id);
const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

// Plotly reads a few tags in its labels: names must stay text
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const shorten = (text, longest = 22) => (text.length <= longest ? text : text.slice(0, longest - 1) + "…");

// the same for many names: of those that begin alike, what differs
function shortenAll(names, longest) {
  const cut = names.map((name) => shorten(name, longest));
  if (new Set(cut).size === names.length) return cut;
  let same = 0;
  while (names.every((name) => same < name.length && name[same] === names[0][same])) same++;
  return same ? names.map((name) => shorten("…" + name.slice(same), longest)) : cut;
}

function number(value, digits = 3) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return value.toExponential(digits - 1);
  return size >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits);
}
const percent = (share) => `${share >= 0.0995 || share === 0 ? (100 * share).toFixed(0) : (100 * share).toFixed(1)} %`;

// The genes of all factors, one after the other; factor k has entries start[k] to start[k + 1], most certain first.
// In core the same entries, as far as they may be core genes, by their own certainty.
const lists = (() => {
  const packed = page.entries;
  const out = { start: packed.start, step: packed.step, cuts: packed.cuts };
  for (const name of ["gene", "loading", "lower", "upper", "inclusion", "relevance"]) out[name] = decode(packed[name]);
  out.core = { start: packed.core.start, cuts: packed.core.cuts, entry: Uint32Array.from(decode(packed.core.place)) };
  out.factor = new Uint16Array(out.gene.length);
  out.fdr = new Float32Array(out.gene.length);
  out.coreFdr = new Float32Array(out.gene.length).fill(NaN);
  out.isCore = new Uint8Array(out.gene.length);
  for (let k = 0; k < nFactors; k++) {
    out.factor.fill(k, out.start[k], out.start[k + 1]);
    for (let e = out.start[k], wrong = 0; e < out.start[k + 1]; e++) {
      wrong += 1 - out.inclusion[e] / 65535;
      out.fdr[e] = wrong / (e - out.start[k] + 1);
    }
    const { start, entry, cuts } = out.core;
    for (let i = start[k], wrong = 0; i < start[k + 1]; i++) {
      entry[i] += out.start[k];
      wrong += 1 - out.relevance[entry[i]] / 65535;
      out.coreFdr[entry[i]] = wrong / (i - start[k] + 1);
      out.isCore[entry[i]] = i - start[k] < cuts["0.05"][k] ? 1 : 0;
    }
  }
  return out;
})();
// rounded in steps of the factor, in units of the gene's deviation
const spreads = decode(page.heatmap.spread);
const valueOf = (name, e) => lists[name][e] * lists.step[lists.factor[e]] * (spreads[lists.gene[e]] || 1);
const inclusionOf = (e) => lists.inclusion[e] / 65535;
const relevanceOf = (e) => lists.relevance[e] / 65535;
const probability = (share) => (share > 0.9995 || share === 0 ? share.toFixed(0) : share.toFixed(3));

function addOption(select, value, text) {
  const option = document.createElement("option");
  option.value = value;
  option.textContent = text;
  select.append(option);
}

function download(name, rows) {
  const cell = (value) => {
    const text = typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const lines = [];
  for (const row of rows) lines.push(row.map(cell).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
