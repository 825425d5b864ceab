"use strict";
// Common to the scripts of all pages: elements, data, theme and axes. All data is part of the page; text is only set
// as text, never as markup.
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

  // The theme of the system, unless chosen with the button of the page.
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
