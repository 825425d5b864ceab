// The setup behind the controls, the scenario text made from it, and its link.

const PATH = [
  {key: "rate", label: "Rate", unit: "Mbit/s", min: 0.5, max: 1000, log: true, start: 20},
  {key: "rtt", label: "RTT", unit: "ms", min: 1, max: 600, log: true, start: 40},
  {key: "buffer", label: "Buffer", unit: "BDP", min: 0.05, max: 32, log: true, start: 1},
  {key: "loss", label: "Random loss", unit: "%", min: 0, max: 20, start: 0},
  {key: "jitter", label: "Jitter", unit: "ms", min: 0, max: 50, start: 0},
  {key: "hold", label: "ACK hold", unit: "ms", min: 0, max: 100, start: 0},
  {key: "policer", label: "Policer", unit: "Mbit/s", min: 0, max: 1000, start: 0, off: true},
];
const QUEUES = ["drop-tail", "codel", "fq-codel", "pie", "fq-pie", "fq", "cellular"];
const APPS = {bulk: "", "video (2 MB every 4 s)": 'app = { kind = "bursts", size = "2MB", every = "4s" }',
  "web (64 kB, 100 ms pause)": 'app = { kind = "request-response", response = "64k", think = "100ms" }',
  "1 Mbit/s": 'app = { kind = "rate", rate = "1mbit" }'};
const MAX_FLOWS = 12;
const MAX_LINK = 20000;
const MAX_TEXT = 100000;

function initialSetup() {
  const setup = {queue: "drop-tail", duration: 20, seed: 1, changes: [], flows: [
    {cc: "bbr", start: 0, app: "bulk", settings: ""}, {cc: "cubic", start: 0, app: "bulk", settings: ""}]};
  for (const p of PATH) setup[p.key] = p.start;
  return setup;
}

// A number as people write it: at most three significant digits unless it is an integer.
const short = (x) => Number.isInteger(x) ? String(x) : String(Number(x.toPrecision(3)));

function bdpBytes(setup) { return Math.max(3000, setup.rate * 1e6 / 8 * setup.rtt / 1e3); }

function toToml(setup) {
  const lines = [`title = "Playground"`, `duration = "${short(setup.duration)}s"`, `seed = ${setup.seed}`,
    `sample = "${sampleMs(setup)}ms"`, "", "[[path.forward]]"];
  if (setup.queue === "cellular") {
    lines.push(`cellular = { min = "${short(Math.max(0.05, setup.rate / 20))}mbit", max = "${short(setup.rate)}mbit" }`);
  } else {
    lines.push(`rate = "${short(setup.rate)}mbit"`);
  }
  lines.push(`delay = "${short(setup.rtt / 2)}ms"`);
  const limit = Math.round(setup.buffer * bdpBytes(setup));
  if (setup.queue === "drop-tail" || setup.queue === "cellular") lines.push(`queue = "${Math.max(1500, limit)}B"`);
  else lines.push(`queue = { kind = "${setup.queue}", limit = "${Math.max(10, Math.round(limit / 1500))}p" }`);
  if (setup.loss > 0) lines.push(`loss = "${short(setup.loss)}%"`);
  if (setup.jitter > 0) lines.push(`jitter = "${short(setup.jitter)}ms"`);
  if (setup.policer > 0) lines.push(`policer = { rate = "${short(setup.policer)}mbit", burst = "100k" }`);
  const changes = setup.changes.slice().sort((a, b) => a.at - b.at);
  if (changes.length) {
    const one = (c) => `{ at = "${c.at.toFixed(3)}s", ` + [["rate", "mbit"], ["delay", "ms"], ["loss", "%"]]
      .filter(([k]) => c[k] !== undefined).map(([k, u]) => `${k} = "${short(c[k])}${u}"`).join(", ") + " }";
    lines.push("schedule = [", ...changes.map((c) => `    ${one(c)},`), "]");
  }
  lines.push("", "[[path.reverse]]", `delay = "${short(setup.rtt / 2)}ms"`);
  if (setup.hold > 0) lines.push(`aggregate = { hold = "${short(setup.hold)}ms" }`);
  for (const flow of setup.flows) {
    lines.push("", "[[flow]]", `cc = "${flow.cc}"`);
    if (flow.start > 0) lines.push(`start = "${short(flow.start)}s"`);
    if (APPS[flow.app]) lines.push(APPS[flow.app]);
    const settings = parseSettings(flow.settings);
    if (settings.length) lines.push(`settings = { ${settings.map(([k, v]) => `${k} = "${v}"`).join(", ")} }`);
  }
  return lines.join("\n") + "\n";
}

// `key=value, key=value`; anything else is left out.
function parseSettings(text) {
  return (text || "").split(/[,\s]+/).map((p) => p.match(/^([a-z0-9_]+)=([a-z0-9_.%-]+)$/i)).filter(Boolean).map((m) => [m[1], m[2]]);
}

// Rows enough to draw, few enough to hold: some thousand a flow.
function sampleMs(setup) {
  const rows = setup.duration * 1e3 / 4000;
  return Math.max(setup.rtt < 10 ? 2 : 5, Math.ceil(rows));
}

async function packed(text, Stream) {
  const stream = new Blob([text]).stream().pipeThrough(new Stream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function toLink(state) {
  const bytes = await packed(JSON.stringify(state), CompressionStream);
  let binary = "";
  for (const b of bytes) binary += String.fromCharCode(b);
  return "#s=" + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The state in a link, or an error. Whatever the link holds, only numbers and known names come out.
async function fromLink(hash) {
  if (hash.length > MAX_LINK) throw new Error("the link is too long");
  const text = hash.slice(3).replaceAll("-", "+").replaceAll("_", "/");
  if (!/^[A-Za-z0-9+/]*$/.test(text)) throw new Error("the link is damaged");
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MAX_TEXT) { reader.cancel(); throw new Error("the link holds too much"); }
    parts.push(value);
  }
  return checkedState(JSON.parse(await new Blob(parts).text()));
}

function checkedState(raw) {
  if (typeof raw !== "object" || raw === null) throw new Error("the link is damaged");
  const state = {setup: null, toml: null, chapter: null};
  if (typeof raw.toml === "string" && raw.toml.length < MAX_TEXT) state.toml = raw.toml;
  if (Number.isInteger(raw.chapter) && raw.chapter >= 0 && raw.chapter < COURSE.length) state.chapter = raw.chapter;
  if (raw.setup) state.setup = checkedSetup(raw.setup);
  return state;
}

function checkedSetup(raw) {
  const number = (x, min, max, otherwise) => typeof x === "number" && x >= min && x <= max ? x : otherwise;
  const setup = initialSetup();
  for (const p of PATH) setup[p.key] = number(raw[p.key], p.min, p.max, p.start);
  setup.queue = QUEUES.includes(raw.queue) ? raw.queue : setup.queue;
  setup.duration = number(raw.duration, 1, 300, setup.duration);
  setup.seed = Math.floor(number(raw.seed, 0, 4294967295, 1));
  const change = (c) => {
    const out = {at: number(c && c.at, 0, 300, 0)};
    if (c && c.rate !== undefined) out.rate = number(c.rate, 0.5, 1000, 20);
    if (c && c.delay !== undefined) out.delay = number(c.delay, 0, 600, 20);
    if (c && c.loss !== undefined) out.loss = number(c.loss, 0, 20, 0);
    return out;
  };
  setup.changes = Array.isArray(raw.changes) ? raw.changes.slice(0, 40).map(change) : [];
  const flow = (f) => ({
    cc: typeof (f && f.cc) === "string" && /^[a-z0-9]{1,16}$/.test(f.cc) ? f.cc : "bbr",
    start: number(f && f.start, 0, 300, 0), app: f && Object.hasOwn(APPS, f.app) ? f.app : "bulk",
    settings: typeof (f && f.settings) === "string" ? f.settings.slice(0, 200) : ""});
  if (Array.isArray(raw.flows) && raw.flows.length) setup.flows = raw.flows.slice(0, MAX_FLOWS).map(flow);
  return setup;
}
