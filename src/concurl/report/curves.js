// ---- numbers under the pointer, on every chart
// of shares the largest, and the rest together: a run may have hundreds of clusters
function largest(lines, most = 8) {
  lines.sort((a, b) => b.value - a.value);
  if (lines.length <= most) return lines;
  const rest = lines.splice(most - 1);
  return [...lines, { name: `${rest.length} others`, colour: "var(--strong-line)", value: rest.reduce((sum, line) => sum + line.value, 0) }];
}
for (const figure of document.querySelectorAll("[data-chart]")) {
  const chart = data.charts[figure.dataset.chart];
  const svg = figure.querySelector("svg"), guide = svg.querySelector(".guide"), tip = $("tip");
  const logged = [...chart.at.keys()].filter((i) => chart.lines.some((line) => line.y[i] !== null)); // the cluster losses begin late
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const near = logged.reduce((a, b) => (Math.abs(chart.at[b] - x) < Math.abs(chart.at[a] - x) ? b : a), logged[0] ?? 0);
    guide.setAttribute("x1", chart.at[near]);
    guide.setAttribute("x2", chart.at[near]);
    figure.classList.add("pointed");
    let lines = chart.lines.map((line, i) => ({ ...line, name: chart.stacked ? data.names[i] : line.name, value: line.y[near] })).filter((line) => line.value !== null);
    if (chart.stacked) lines = largest(lines);
    const told = (value) => (chart.stacked ? `${(100 * value).toFixed(1)}%` : Number(value.toPrecision(4)));
    const rows = lines.map((line) => make("p", {}, swatch(line.colour), make("bdi", {}, line.name), make("b", {}, told(line.value))));
    tip.replaceChildren(make("strong", {}, `Epoch ${chart.x[near].toLocaleString("en")}`), ...rows);
    tip.hidden = false;
    const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, Math.min(innerHeight - tip.offsetHeight - 8, event.clientY - 20))}px`;
  });
  svg.addEventListener("pointerleave", () => { figure.classList.remove("pointed"); tip.hidden = true; });
}
