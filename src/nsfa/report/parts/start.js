// Tables at once; figures one after the other, those on the first screen first; all of them before printing.
const PRINT_WIDTH = 680;
const drawn = [];

function drawNext() {
  const next = waiting.shift();
  if (!next) return false;
  next.make();
  drawn.push(next.id);
  if (!waiting.length) {
    performance.mark("nsfa-drawn");
    document.documentElement.dataset.drawn = "all";
  }
  return true;
}

function drawRest() {
  if (drawNext()) setTimeout(drawRest);
}

const visible = (id) => byId(id).getBoundingClientRect().width > 0;

addEventListener("beforeprint", () => {
  while (drawNext());
  for (const id of drawn.filter(visible)) {
    const half = byId(id).closest(".pair") !== null;
    Plotly.relayout(id, { width: half ? PRINT_WIDTH / 2 - 14 : PRINT_WIDTH, height: Math.min(sized.get(id), 860), autosize: false });
  }
});
addEventListener("afterprint", () => {
  for (const id of drawn) Plotly.relayout(id, { width: null, height: sized.get(id), autosize: true });
});

if (nFactors) {
  genes.start();
  scores.start();
}
if (page.enrichment?.columns.factor.length) sets.start();
waiting.sort((a, b) => byId(a.id).getBoundingClientRect().top - byId(b.id).getBoundingClientRect().top);
requestAnimationFrame(() => setTimeout(drawRest));
