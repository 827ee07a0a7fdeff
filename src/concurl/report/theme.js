"use strict";
{
  // Before the first paint, so that a reader who chose a theme never sees the other one flash.
  let chosen = null;
  try { chosen = localStorage.getItem("concurl-theme"); } catch { /* storage may be forbidden for files */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
