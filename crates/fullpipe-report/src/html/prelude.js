"use strict";
// What the script of every page begins with: its elements, its data, light or dark, and what common axes look like.
// All data came in with the page; text is only ever set as text.
const fullpipe = (() => {
  const root = document.documentElement;
  const fail = (text) => { root.dataset.error = (root.dataset.error ? root.dataset.error + "\n" : "") + text; };
  addEventListener("error", (e) => fail(e.message));

  const byId = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const axis = () => ({ stroke: ink("--faint"), grid: { stroke: ink("--rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" });

  // Light or dark: the system's, unless chosen with the page's button.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = { dark: system.matches };
  const apply = () => root.classList.toggle("dark", theme.dark);
  apply();
  const onTheme = (restyle) => {
    const change = (dark) => { theme.dark = dark; apply(); restyle(); };
    byId("theme").addEventListener("click", () => change(!theme.dark));
    system.addEventListener("change", () => change(system.matches));
  };

  return { root, fail, byId, make, ink, axis, theme, onTheme, data: JSON.parse(byId("data").textContent) };
})();
