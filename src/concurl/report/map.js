// ---- the map: one canvas, redrawn when something changes, never while nothing does
if ($("canvas")) {
  const canvas = $("canvas"), stage = $("stage"), ring = $("ring"), card = $("hovercard");
  const n = data.x.length;
  const boxes = [...document.querySelectorAll(".chips input")];
  const shown = new Uint8Array(n); // 1: passes the filters
  const whole = { scale: 1, x: 0.5, y: 0.5 }, view = { ...whole }; // x, y: the map's point in the middle of the stage
  const pictured = new Map(); // cell of the grid: the image that lies there
  let width = 1, height = 1, aside = 0, selected = -1, drawn = 0, passed = n; // aside: pixels, the zoom buttons; drawn: the frame that is due; passed: images, the filters

  // ---- coordinates
  // the map lies in the middle of its unit square and seldom fills it: what it fills is fitted to the stage
  const extent = (values) => Math.max(500, values.reduce((a, b) => Math.max(a, b), 0) - values.reduce((a, b) => Math.min(a, b), 10000)) / 10000;
  const across = extent(data.x), along = extent(data.y);
  const side = () => Math.max(1, Math.min((width - aside - 56) / across, (height - 56) / along)) * view.scale;
  const middle = () => (width - aside) / 2;
  const right = (i) => middle() + (data.x[i] / 10000 - view.x) * side();
  const down = (i) => height / 2 + (data.y[i] / 10000 - view.y) * side();

  // ---- filters
  function filter() {
    const low = Number($("at-least").value), high = Number($("at-most").value);
    const on = new Set(boxes.filter((box) => box.checked).map((box) => Number(box.value)));
    let count = 0;
    for (let i = 0; i < n; i++) {
      const sure = data.confidence[i];
      // an image without a confidence cannot pass a bound on it
      const within = sure === null ? low === 0 && high === 1 : sure >= low && sure <= high;
      count += shown[i] = Number(within && on.has(data.cluster[i]));
    }
    for (const output of document.querySelectorAll(".range output")) output.value = Number($(output.htmlFor.value).value).toFixed(2);
    passed = count;
    tellCount();
    if (selected >= 0 && !shown[selected]) select(-1);
    draw();
  }
  function tellCount() {
    const roomFor = asPictures() ? `; ${pictured.size.toLocaleString("en")} have room here, zoom in for more` : "";
    const text = `${passed.toLocaleString("en")} of ${n.toLocaleString("en")} images shown${pictured.size < passed ? roomFor : ""}`;
    if ($("map-count").textContent !== text) $("map-count").textContent = text;
  }
  const only = (clusters) => { for (const box of boxes) box.checked = clusters(Number(box.value)); filter(); };
  const anySureness = () => { $("at-least").value = 0; $("at-most").value = 1; };
  // bounds that cross would leave nothing: the one that is moved takes the other along
  $("at-least").addEventListener("input", () => { $("at-most").value = Math.max($("at-most").value, $("at-least").value); });
  $("at-most").addEventListener("input", () => { $("at-least").value = Math.min($("at-least").value, $("at-most").value); });
  $("filters").addEventListener("input", filter);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("all-clusters").addEventListener("click", () => { anySureness(); only(() => true); });
  $("no-clusters").addEventListener("click", () => only(() => false));
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      anySureness();
      only((cluster) => cluster === Number(button.dataset.show));
      showAll();
      $("map").scrollIntoView();
      canvas.focus({ preventScroll: true });
    });
  }

  // ---- pictures lie on a grid, one to a cell, so that none covers another
  const asPictures = () => document.querySelector("input[value=pictures]").checked;
  const cellSize = () => (width < 500 ? 32 : 42);
  const cellAt = (x, y) => [Math.floor(x / cellSize()), Math.floor(y / cellSize())];
  const seen = (i) => { const x = right(i), y = down(i); return x > -40 && y > -40 && x < width + 40 && y < height + 40; };
  function layPictures() {
    pictured.clear();
    for (let i = 0; i < n; i++) {
      if (!shown[i] || !seen(i)) continue;
      const cell = cellAt(right(i), down(i)).join();
      if (!pictured.has(cell)) pictured.set(cell, i);
    }
  }

  // ---- drawing
  const dotRadius = () => Math.min(6, Math.max(1.6, 70 / Math.sqrt(n)) * (width < 500 ? 0.8 : 1) * Math.sqrt(view.scale) + 0.9);
  function draw() {
    if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; paint(); });
  }
  function paint() {
    const ink = canvas.getContext("2d"), dark = isDark();
    ink.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ink.clearRect(0, 0, width, height);
    const radius = dotRadius();
    const dot = (i) => { ink.beginPath(); ink.arc(right(i), down(i), radius, 0, 7); ink.fill(); };
    ink.fillStyle = dark ? "#ffffff14" : "#00000010";
    for (let i = 0; i < n; i++) if (!shown[i] && seen(i)) dot(i);
    if (asPictures()) {
      paintPictures(ink);
    } else {
      ink.globalAlpha = 0.85;
      const colours = data[dark ? "dark" : "light"]; // asking for the theme at each of 10,000 dots took half of the time
      for (let i = 0; i < n; i++) {
        if (!shown[i] || !seen(i)) continue;
        ink.fillStyle = colours[data.cluster[i]];
        dot(i);
      }
    }
    ink.globalAlpha = 1;
    paintNames(ink, dark);
    tellCount();
    if (selected >= 0) mark();
  }
  function paintPictures(ink) {
    layPictures();
    const size = cellSize();
    for (const [cell, i] of pictured) {
      const [x, y] = cell.split(",").map((place) => place * size), cut = sheetOf(i, draw);
      ink.fillStyle = colourOf(data.cluster[i]);
      ink.fillRect(x + 0.5, y + 0.5, size - 1, size - 1);
      if (cut) ink.drawImage(...cut, x + 2, y + 2, size - 4, size - 4);
    }
  }
  // steps to a free place, nearest first and to all sides: straight up or down there may be another cluster's dots
  const around = [];
  for (let dx = -160; dx <= 160; dx += 8) for (let dy = -320; dy <= 320; dy += 8) around.push([dx, dy]);
  around.sort((a, b) => Math.hypot(...a) - Math.hypot(...b));
  function paintNames(ink, dark) {
    // colour is never the only key: each cluster's name stands on it
    const places = thickest().filter(([, { x, y }]) => Math.abs(x - view.x) * side() < width / 2 + 100 && Math.abs(y - view.y) * side() < height / 2 + 100);
    // where clusters are many, the largest have names, close by, and the others wait until the reader zooms in: more would hide the dots
    const crowded = places.length > 40, steps = crowded ? around.filter((step) => Math.hypot(...step) <= 16) : around;
    if (crowded) places.splice(Math.floor(width * height / 9000));
    ink.font = "600 12.5px system-ui, sans-serif";
    ink.textAlign = "center";
    ink.lineWidth = 4;
    ink.lineJoin = "round";
    ink.strokeStyle = dark ? "#1a1c1fe6" : "#ffffffe6";
    const written = [], radius = dotRadius(), corner = document.querySelector(".zoom");
    // where dots are few, none is hidden; where they are many, a name beside them all would be nowhere near its own
    const dots = n > 300 ? [] : [...shown.keys()].filter((i) => shown[i]).map((i) => [right(i), down(i)]);
    for (const [cluster, { x, y }] of places) {
      const name = data.names[cluster];
      const text = name.length > 22 ? `${name.slice(0, 21)}…` : name;
      const half = ink.measureText(text).width / 2 + 10, own = middle() + (x - view.x) * side();
      // a name at the edge stays whole; one that was zoomed out of sight stays there
      const start = own < 0 || own > width ? own : Math.max(half, Math.min(width - half, own));
      const up = height / 2 + (y - view.y) * side() - radius - 4;
      const inside = (x, y) => x >= half && x <= width - half && y > 12 && y < height - 4;
      const hides = (x, y) => dots.some((dot) => Math.abs(dot[0] - x) < half + radius && Math.abs(dot[1] - y + 4) < radius + 6);
      const meets = (x, y) => written.some((other) => Math.abs(other.left - x) < other.half + half && Math.abs(other.top - y) < 16);
      const covered = (x, y) => x + half > corner.offsetLeft && y + 4 > corner.offsetTop && y - 12 < corner.offsetTop + corner.offsetHeight;
      const free = (x, y) => !covered(x, y) && (inside(x, y) || !inside(start, up)) && !meets(x, y) && !hides(x, y);
      const place = steps.find(([dx, dy]) => free(start + dx, up + dy));
      if (!place && crowded) continue;
      const [dx, dy] = place ?? [0, 0]; // where all places are taken, a name on another is better than none
      const left = start + dx, top = up + dy;
      written.push({ left, top, half });
      ink.fillStyle = dark ? "#eceef1" : "#17181a";
      ink.strokeText(text, left + 6, top);
      ink.fillText(text, left + 6, top);
      // a name may have had to make way: its colour says whose it is, as a square, since dots are images
      ink.fillStyle = colourOf(cluster);
      ink.strokeRect(left - half + 4, top - 8.5, 8, 8);
      ink.fillRect(left - half + 4, top - 8.5, 8, 8);
    }
  }
  function thickest() {
    // the middle of a cluster that lies in two places is in neither: take what lies around its most crowded cell
    const cell = 800, counts = new Map(), best = new Map(), middles = new Map();
    for (let i = 0; i < n; i++) {
      if (!shown[i]) continue;
      const key = `${data.cluster[i]} ${Math.floor(data.x[i] / cell)} ${Math.floor(data.y[i] / cell)}`;
      const count = (counts.get(key) ?? 0) + 1;
      counts.set(key, count);
      if (!(best.get(data.cluster[i])?.count >= count)) best.set(data.cluster[i], { count, x: data.x[i], y: data.y[i] });
    }
    for (let i = 0; i < n; i++) {
      const near = shown[i] && best.get(data.cluster[i]);
      if (!near || Math.hypot(data.x[i] - near.x, data.y[i] - near.y) > 1.5 * cell) continue;
      const sum = middles.get(data.cluster[i]) ?? { count: 0, x: 0, y: 0 };
      sum.count += 1;
      sum.x += data.x[i] / 10000;
      sum.y += data.y[i] / 10000;
      middles.set(data.cluster[i], sum);
    }
    const found = [...middles].sort((a, b) => b[1].count - a[1].count);
    return found.map(([cluster, sum]) => [cluster, { x: sum.x / sum.count, y: sum.y / sum.count }]);
  }

  // ---- the selected image
  function mark() {
    const x = right(selected), y = down(selected);
    ring.style.left = `${x}px`;
    ring.style.top = `${y}px`;
    card.style.left = `${Math.max(8, Math.min(width - card.offsetWidth - 8, x + 18))}px`;
    card.style.top = `${Math.max(8, y + 18 + card.offsetHeight > height ? y - 18 - card.offsetHeight : y + 18)}px`;
  }
  function select(i, aloud = false) {
    if (i === selected && !aloud) return;
    selected = i;
    ring.hidden = card.hidden = i < 0;
    if (i < 0) return;
    const name = data.names[data.cluster[i]], sure = `confidence ${three(data.confidence[i])}`;
    $("hover-path").textContent = pathOf(i);
    $("hover-cluster").textContent = name;
    $("hover-swatch").style.setProperty("--c", colourOf(data.cluster[i]));
    $("hover-sure").textContent = sure;
    const picture = $("hover-picture");
    picture.getContext("2d").clearRect(0, 0, picture.width, picture.height);
    withCut(i, (cut) => { if (selected === i) paste(cut, picture); });
    mark();
    if (aloud) $("map-said").textContent = `${pathOf(i)}, ${name}, ${sure}`;
  }
  function nearest(x, y, within, allowed = () => true) {
    let best = -1, least = within * within;
    for (let i = 0; i < n; i++) {
      if (!shown[i]) continue;
      const dx = right(i) - x, dy = down(i) - y, far = dx * dx + dy * dy;
      if (far < least && allowed(i, dx, dy)) { best = i; least = far; }
    }
    return best;
  }
  function under(x, y, within) {
    if (!asPictures()) return nearest(x, y, within);
    if (drawn) layPictures(); // the pointer may come before the frame that is due
    return pictured.get(cellAt(x, y).join()) ?? -1;
  }
  function open() {
    if (selected >= 0) viewer.open([selected], 0);
  }

  // ---- zoom and move
  function zoom(factor, x = middle(), y = height / 2) {
    const before = side();
    view.scale = Math.min(60, Math.max(1, view.scale * factor));
    const after = side();
    view.x += (x - middle()) * (1 / before - 1 / after);
    view.y += (y - height / 2) * (1 / before - 1 / after);
    if (view.scale === 1) Object.assign(view, whole);
    canvas.style.touchAction = view.scale > 1 ? "none" : "";
    draw();
  }
  const showAll = () => zoom(0);
  $("zoom-in").addEventListener("click", () => zoom(1.6));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
  $("zoom-reset").addEventListener("click", showAll);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
  }, { passive: false });

  // ---- pointer
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => { grip = { x: event.offsetX, y: event.offsetY, moved: false }; });
  canvas.addEventListener("pointermove", (event) => {
    if (grip && event.buttons) {
      const dx = event.offsetX - grip.x, dy = event.offsetY - grip.y;
      if (!grip.moved && Math.hypot(dx, dy) < 5) return;
      if (!grip.moved) canvas.setPointerCapture(event.pointerId);
      view.x -= dx / side();
      view.y -= dy / side();
      view.x = Math.max(0.5 - across / 2, Math.min(0.5 + across / 2, view.x));
      view.y = Math.max(0.5 - along / 2, Math.min(0.5 + along / 2, view.y));
      grip = { x: event.offsetX, y: event.offsetY, moved: true };
      canvas.classList.add("dragging");
      draw();
      return;
    }
    select(under(event.offsetX, event.offsetY, 16));
  });
  canvas.addEventListener("pointerup", (event) => {
    const click = grip && !grip.moved;
    grip = null;
    canvas.classList.remove("dragging");
    if (!click) return;
    // a finger cannot hover: its first tap shows the card, a tap on the same image opens it
    const hit = under(event.offsetX, event.offsetY, event.pointerType === "touch" ? 24 : 16);
    const again = hit >= 0 && (event.pointerType !== "touch" || hit === selected);
    select(hit);
    if (again) open();
  });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch" && !$("viewer").open && !canvas.matches(":focus-visible")) select(-1); });

  // ---- keyboard
  canvas.addEventListener("focus", () => {
    if (selected < 0 && canvas.matches(":focus-visible")) select(nearest(middle(), height / 2, Infinity), true);
  });
  canvas.addEventListener("blur", () => { if (!$("viewer").open) select(-1); });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (way) {
      const from = selected >= 0 ? [right(selected), down(selected)] : [middle(), height / 2];
      const ahead = (i, dx, dy) => {
        const along = dx * way[0] + dy * way[1], across = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
        return i !== selected && along > 0 && across <= along;
      };
      const next = nearest(...from, Infinity, ahead);
      if (next >= 0) {
        const x = right(next), y = down(next);
        if (x < 20 || y < 20 || x > width - 20 || y > height - 20) Object.assign(view, { x: data.x[next] / 10000, y: data.y[next] / 10000 });
        select(next, true);
        draw();
      }
    } else if (event.key === "Enter" || event.key === " ") open();
    else if (event.key === "Escape") select(-1);
    else if (event.key === "+" || event.key === "=") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else if (event.key === "0") showAll();
    else return;
    event.preventDefault();
  });

  // ---- size and theme
  function fit() {
    width = stage.clientWidth;
    height = stage.clientHeight;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    stepAside();
    draw();
  }
  // a dot under the zoom buttons could not be seen: if the whole map has one there, it leaves them their column
  function stepAside() {
    const buttons = document.querySelector(".zoom"), now = { ...view };
    const covered = (i) => right(i) + radius > buttons.offsetLeft && down(i) + radius > buttons.offsetTop && down(i) - radius < buttons.offsetTop + buttons.offsetHeight;
    aside = 0;
    Object.assign(view, whole);
    const radius = dotRadius();
    if (data.x.some((_, i) => covered(i))) aside = width - buttons.offsetLeft;
    Object.assign(view, now);
  }
  new ResizeObserver(fit).observe(stage);
  for (const [event, starts] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { onPaper = starts; paint(); });
  document.addEventListener("namechange", draw);
  document.addEventListener("themechange", () => { draw(); if (selected >= 0) $("hover-swatch").style.setProperty("--c", colourOf(data.cluster[selected])); });
  fit(); // not only when the observer reports: the pointer may be there before
  filter();
}
