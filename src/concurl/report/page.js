"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
let onPaper = false; // paper is white, whatever the screen is
const isDark = () => !onPaper && (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const colourOf = (cluster) => data[isDark() ? "dark" : "light"][cluster];
const pathOf = (i) => data.folders[data.folder[i]] + data.file[i];
const three = (value) => (value === null ? "–" : value.toFixed(3));
const make = (tag, settings, ...inside) => { const made = Object.assign(document.createElement(tag), settings); made.append(...inside); return made; };
const swatch = (colour) => { const dot = make("span", { className: "swatch" }); dot.style.setProperty("--c", colour); return dot; };

// ---- theme
{
  const button = $("theme");
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("concurl-theme", chosen); } catch { /* it lasts until the page is closed */ }
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

// ---- which section the reader is in
{
  const links = new Map([...document.querySelectorAll(".top nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const [id, link] of links) {
        if (id === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-30% 0px -65% 0px" });
  for (const id of links.keys()) seen.observe($(id));
}

// ---- sprite sheets: decoded when first looked at, so that they cost nothing when the page opens
const sheets = [];
function sheetOf(i, then) {
  const perSheet = data.sheet.across ** 2;
  const number = Math.floor(i / perSheet);
  if (i >= data.x.length) return null;
  let sheet = sheets[number];
  if (!sheet) {
    sheet = sheets[number] = new Image();
    sheet.src = $(`sheet-${number}`).textContent;
  }
  const { side, across } = data.sheet;
  const place = i % perSheet;
  const cut = [sheet, (place % across) * side, Math.floor(place / across) * side, side, side];
  if (sheet.complete && sheet.naturalWidth) return cut;
  sheet.addEventListener("load", () => then(cut), { once: true });
  return null;
}
function withCut(i, then) {
  const cut = sheetOf(i, then);
  if (cut) then(cut);
}
const blank = () => make("canvas", { width: data.sheet.side, height: data.sheet.side });
const paste = (cut, picture) => picture.getContext("2d").drawImage(...cut, 0, 0, picture.width, picture.height);

// ---- galleries: one tab stop per list, arrow keys inside it
for (const card of document.querySelectorAll(".card")) {
  card.addEventListener("keydown", (event) => {
    const list = event.target.closest(".lens");
    if (!list) return;
    const thumbs = [...list.querySelectorAll(".thumb")];
    const at = thumbs.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(list), ArrowUp: -columns(list), Home: -at, End: thumbs.length - 1 - at }[event.key];
    if (step === undefined || at < 0) return;
    event.preventDefault();
    const next = thumbs[Math.max(0, Math.min(thumbs.length - 1, at + step))];
    thumbs[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
const columns = (list) => getComputedStyle(list).gridTemplateColumns.split(" ").length;
{
  const cards = $("cards");
  $("order").addEventListener("change", (event) => {
    const key = event.target.value;
    const rank = (card) => {
      const value = Number(card.dataset[key]) * (key === "size" ? -1 : 1);
      return Number.isNaN(value) ? Infinity : value; // an empty cluster is neither sure nor unsure: it comes last
    };
    cards.append(...[...cards.children].sort((a, b) => rank(a) - rank(b) || a.dataset.cluster - b.dataset.cluster));
  });
}

// ---- all images of a cluster, of those that the map has: cut out when they are asked for
for (const button of document.querySelectorAll("[data-all]")) {
  const card = button.closest(".card"), cluster = Number(button.dataset.all);
  const rows = [...data.x.keys()].filter((i) => data.cluster[i] === cluster);
  const label = rows.length < card.dataset.size ? `Show ${rows.length.toLocaleString("en")} of them` : "Show all";
  button.firstChild.textContent = label;
  button.hidden = false;
  const thumbOf = (row, at) => {
    const picture = blank(), title = `${pathOf(row)}, confidence ${three(data.confidence[row])}`;
    const thumb = make("button", { type: "button", className: "thumb", tabIndex: at ? -1 : 0, title }, picture);
    thumb.dataset.row = row;
    withCut(row, (cut) => paste(cut, picture));
    return make("li", {}, thumb);
  };
  button.addEventListener("click", () => {
    const open = card.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
    button.firstChild.textContent = open ? "Show fewer" : label;
    card.querySelector(".all-images")?.remove();
    if (open) {
      rows.sort((a, b) => data.confidence[b] - data.confidence[a]); // so a cluster frays at its end
      const list = make("ul", { className: `${card.querySelector(".lens").className} all-images` }, ...rows.map(thumbOf));
      list.setAttribute("aria-label", `${data.names[cluster]}, the surest first`);
      card.querySelector(".facts").after(list);
    }
    card.scrollIntoView({ block: "nearest" });
  });
}

// ---- names: typed on the cards, saved as the names.json that `concurl report` reads
{
  const names = { ...data.given }, saved = new Map();
  const bar = $("unsaved"), said = $("names-said");
  let unsaved = false;
  // as on the page that `concurl report` will make: parts of one kind may share a name, and the number tells them apart
  const rename = () => {
    const plain = data.names.map((_, cluster) => names[cluster] ?? `Cluster ${cluster}`), used = new Map();
    for (const name of plain) used.set(name, (used.get(name) ?? 0) + 1);
    data.names = plain.map((name, cluster) => (used.get(name) > 1 ? `${name} (${cluster})` : name));
    for (const place of document.querySelectorAll("[data-name]")) {
      place.textContent = data.names[place.dataset.name];
      if (place.title) place.title = place.textContent;
    }
  };
  for (const element of document.querySelectorAll(".own-name, .with-script")) element.hidden = false; // else nothing could save them
  for (const field of document.querySelectorAll(".own-name")) {
    const cluster = field.dataset.cluster;
    saved.set(cluster, field.value);
    field.addEventListener("input", () => {
      const name = field.value.trim();
      if (name) names[cluster] = name;
      else delete names[cluster];
      rename();
      for (const number of document.querySelectorAll(`[data-number="${cluster}"]`)) number.hidden = !name;
      document.dispatchEvent(new Event("namechange"));
      unsaved = [...saved].some(([one, value]) => (names[one] ?? "") !== value);
      if (unsaved) said.textContent = "When you are done, save the names: they go into a file, names.json.";
      bar.hidden = !unsaved;
    });
  }
  $("save-names").addEventListener("click", () => {
    const file = new Blob([JSON.stringify(names, null, 2) + "\n"], { type: "application/json" });
    make("a", { href: URL.createObjectURL(file), download: "names.json" }).click();
    for (const cluster of saved.keys()) saved.set(cluster, names[cluster] ?? "");
    unsaved = false;
    said.textContent = "Move names.json from your downloads into the run’s folder, then run concurl report on that folder.";
  });
  $("hide-names").addEventListener("click", () => { bar.hidden = true; });
  addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
}

// ---- one image, large; `around` lists the images that previous and next lead to
function findPicture(row, then) {
  const larger = document.querySelector(`.thumb[data-row="${row}"] img`); // in a gallery
  if (larger) return then(larger.src);
  withCut(row, (cut) => {
    const picture = blank();
    paste(cut, picture);
    then(picture.toDataURL());
  });
}
const viewer = (() => {
  const dialog = $("viewer"), picture = $("viewer-picture");
  let around = [], at = 0;
  const show = () => {
    const row = around[at];
    $("viewer-path").firstElementChild.textContent = pathOf(row);
    $("viewer-cluster").textContent = data.names[data.cluster[row]];
    $("viewer-swatch").style.setProperty("--c", colourOf(data.cluster[row]));
    picture.hidden = true;
    picture.removeAttribute("src");
    picture.alt = pathOf(row);
    findPicture(row, (source) => {
      if (row !== around[at]) return; // the reader has gone on
      picture.src = source;
      picture.hidden = false;
    });
    const next = data.next[row], numbers = { Confidence: data.confidence, "Margin over the second choice": data.margin, "Agreement of the ensemble": data.agreement, "Outlier score, 0 to 1": data.outlier };
    const facts = Object.entries(numbers).map(([name, column]) => [name, three(column[row])]);
    facts.push(["Status", data.unsure[row] ? "unsure" : "ok"]);
    if (next >= 0) facts.push(["Nearest other cluster", swatch(colourOf(next)), make("bdi", {}, data.names[next])]);
    $("viewer-facts").replaceChildren(...facts.map(([name, ...value]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value))));
    $("copy-path").textContent = "Copy path";
    $("viewer-back").hidden = $("viewer-on").hidden = around.length < 2;
  };
  // a sprite blown up further would be nothing but blur
  picture.addEventListener("load", () => { picture.style.maxWidth = `${4 * picture.naturalWidth}px`; });
  const turn = (step) => { at = (at + step + around.length) % around.length; show(); };
  $("viewer-back").addEventListener("click", () => turn(-1));
  $("viewer-on").addEventListener("click", () => turn(1));
  $("viewer-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") turn(-1);
    if (event.key === "ArrowRight") turn(1);
  });
  return { open(images, which) { around = images; at = which; show(); dialog.showModal(); } };
})();
$("cards").addEventListener("click", (event) => {
  const thumb = event.target.closest(".thumb");
  if (!thumb) return;
  const thumbs = [...thumb.closest(".lens").querySelectorAll(".thumb")];
  viewer.open(thumbs.map((t) => Number(t.dataset.row)), thumbs.indexOf(thumb));
});

// ---- the clipboard: a button copies the text of the element that it names
for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const text = $(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // no clipboard for pages from disk in some browsers: ready for ctrl-c
      button.textContent = "Selected";
    }
  });
}
