// Works the page as a reader would and writes down what it finds as attributes of the root element.
addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement;
  const note = (name, value) => root.setAttribute("data-t-" + name, value);
  const chart = (id) => document.querySelector(`[data-panel=${id}]`);
  // How many pixels of a chart have this colour, give or take what smooth edges blend.
  const pixels = (id, hex) => {
    const canvas = chart(id).querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    let n = 0;
    for (let i = 0; i < data.length; i += 4)
      if (data[i + 3] > 60 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12) n++;
    return n;
  };
  const button = (i) => document.querySelectorAll("#lines button")[i];
  const colours = JSON.parse(document.getElementById("colours").textContent);
  const steps = [
    () => {
      note("panels", [...document.querySelectorAll("[data-panel]")].map((e) => e.dataset.panel).join(" "));
      note("drawn", colours.map((c) => pixels("goodput", c)).join(" "));
      note("states", pixels("states", colours[0]));
      button(0).click();
    },
    () => { note("hidden", pixels("goodput", colours[0])); button(0).click(); },
    () => { note("back", pixels("goodput", colours[0])); document.getElementById("log").click(); },
    () => { note("log", pixels("goodput", colours[0])); document.getElementById("log").click(); },
    () => {
      note("before", chart("rtt").querySelector("canvas").toDataURL().length);
      const over = chart("goodput").querySelector(".u-over");
      const box = over.getBoundingClientRect();
      const mouse = (type, share, on) => on.dispatchEvent(new MouseEvent(type, {
        bubbles: true, clientX: box.left + box.width * share, clientY: box.top + 20, button: 0, movementX: 9, view: window }));
      mouse("mousemove", 0.2, over);
      mouse("mousedown", 0.2, over);
      mouse("mousemove", 0.4, over);
      mouse("mouseup", 0.4, document);
    },
    () => {
      note("zoomed", !document.getElementById("reset").disabled);
      const over = chart("goodput").querySelector(".u-over");
      const box = over.getBoundingClientRect();
      over.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + 20 }));
    },
    () => {
      note("readout", chart("rtt").querySelector(".readout").textContent);
      document.getElementById("reset").click();
    },
    () => { note("unzoomed", document.getElementById("reset").disabled); document.getElementById("theme").click(); },
    () => { const scenario = document.querySelector("details.scenario"); if (scenario) scenario.open = true; },
    () => {
      note("playground", document.querySelector("details.scenario a.playground")?.getAttribute("href") ?? "none");
      note("themes", document.querySelectorAll("canvas").length);
      note("requests", performance.getEntriesByType("resource").length);
      note("pwned", window.pwned ?? "no");
      note("end", "yes");
    },
  ];
  const next = () => { const step = steps.shift(); if (step) { step(); setTimeout(next, 60); } };
  next();
}, 60));
