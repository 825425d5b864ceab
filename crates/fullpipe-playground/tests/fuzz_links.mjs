// Hostile links: node fuzz_links.mjs [INPUTS] [SEED]
//
// Mutates links, what is compressed in them, and single values, and decodes them with the page's own code. Whatever a link holds, the
// decoder returns numbers in range and known names, or an Error; the scenario made from it has no characters but those it writes.
import { readFileSync } from "node:fs";
import { deepStrictEqual } from "node:assert";
import { Duplex } from "node:stream";
import { createInflateRaw, deflateRawSync } from "node:zlib";

const inputs = Number(process.argv[2] ?? 20000);
let state = BigInt(process.argv[3] ?? 1);
const random = () => {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number(state >> 33n) / 2 ** 31;
};
const pick = (list) => list[Math.floor(random() * list.length)];

const source = readFileSync(new URL("../page/model.js", import.meta.url), "utf8");
// node 18 has no stream for "deflate-raw".
class Inflate {
  constructor(format) {
    if (format !== "deflate-raw") throw new Error(`unexpected format ${format}`);
    return Duplex.toWeb(createInflateRaw());
  }
}
const page = new Function("COURSE", "DecompressionStream", `${source}; return {fromLink, checkedState, toToml, initialSetup, PATH, QUEUES, APPS, MAX_FLOWS, MAX_TEXT};`)(Array(10), Inflate);

const HOSTILE = ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "__proto__", "constructor", "toString", "hasOwnProperty", "bbr\"\n[path]", "1e999",
  "x".repeat(5000), "\u0000", "\ud800", "rate=1,rate=\"2\"", "a=b c=d", "${1}", "javascript:alert(1)"];
const value = (depth) => {
  switch (Math.floor(random() * 9)) {
    case 0: return null;
    case 1: return random() < 0.5;
    case 2: return pick([0, -1, 1e308, -1e308, 0.1, 1e-300, 2 ** 53, 4294967296, random() * 1000]);
    case 3: return pick(HOSTILE);
    case 4: return pick([...page.QUEUES, ...Object.keys(page.APPS), "bbr", "mine", "cubic"]);
    case 5: return depth ? Array.from({length: Math.floor(random() * 20)}, () => value(depth - 1)) : [];
    case 6: return depth ? Object.fromEntries(Array.from({length: Math.floor(random() * 5)}, () => [pick([...HOSTILE, "at", "rate", "cc", "flows", "toml"]), value(depth - 1)])) : {};
    default: return random() * 100;
  }
};
const setup = () => {
  const made = page.initialSetup();
  made.flows[0].settings = "cwnd_gain=2";
  for (const key of [...Object.keys(made), "__proto__"]) if (random() < 0.4) Object.defineProperty(made, key, {value: value(2), enumerable: true, configurable: true, writable: true});
  if (Array.isArray(made.flows)) for (const flow of made.flows) if (flow && typeof flow === "object") for (const key of ["cc", "start", "app", "settings"]) if (random() < 0.5) flow[key] = value(1);
  if (random() < 0.3) made.changes = [{at: value(0), rate: value(0), delay: value(0), loss: value(0)}, value(1)];
  return made;
};
const made = () => random() < 0.1 ? value(3) : {setup: random() < 0.8 ? setup() : value(3), toml: random() < 0.3 ? value(0) : undefined, chapter: random() < 0.5 ? value(0) : undefined};
const encode = (bytes) => "#s=" + Buffer.from(bytes).toString("base64url");
const damaged = (link) => {
  const letters = [...link];
  for (let n = 1 + random() * 6; n > 0; n--) {
    const at = 3 + Math.floor(random() * (letters.length - 3));
    switch (Math.floor(random() * 4)) {
      case 0: letters[at] = String.fromCharCode(33 + Math.floor(random() * 94)); break;
      case 1: letters.splice(at, Math.floor(random() * 9)); break;
      case 2: letters.splice(at, 0, pick(HOSTILE)); break;
      default: letters[at] = pick([..."AZaz09-_"]);
    }
  }
  return letters.join("");
};

const TOML = /^[\x20-\x7e\n]*$/;
function check(decoded, input) {
  const fail = (reason) => { throw new Error(`${reason}: ${JSON.stringify(input).slice(0, 600)}`); };
  if (Object.keys({}).length || {}.rate !== undefined || {}.cc !== undefined || {}.at !== undefined) fail("a prototype was changed");
  if (decoded.chapter !== null && !(Number.isInteger(decoded.chapter) && decoded.chapter >= 0 && decoded.chapter < 10)) fail("chapter");
  if (decoded.toml !== null && !(typeof decoded.toml === "string" && decoded.toml.length < page.MAX_TEXT)) fail("toml");
  const s = decoded.setup;
  if (s === null) return;
  for (const p of page.PATH) if (!(typeof s[p.key] === "number" && s[p.key] >= p.min && s[p.key] <= p.max)) fail(p.key);
  if (!page.QUEUES.includes(s.queue) || !(s.duration >= 1 && s.duration <= 300) || !Number.isInteger(s.seed)) fail("queue, duration or seed");
  if (!(s.flows.length >= 1 && s.flows.length <= page.MAX_FLOWS) || s.changes.length > 40) fail("number of flows or changes");
  for (const f of s.flows) if (!/^[a-z0-9]{1,16}$/.test(f.cc) || !(f.start >= 0 && f.start <= 300) || !Object.hasOwn(page.APPS, f.app)) fail("flow");
  for (const c of s.changes) for (const v of Object.values(c)) if (!Number.isFinite(v)) fail("change");
  const text = page.toToml(s);
  if (!TOML.test(text) || /NaN|Infinity|undefined|null|[<>]/.test(text) || (text.match(/^\[\[flow\]\]$/gm) || []).length !== s.flows.length) fail(`scenario ${text}`);
}

const intact = {setup: {...page.initialSetup(), rate: 33}, toml: null, chapter: null};
deepStrictEqual(await page.fromLink(encode(deflateRawSync(JSON.stringify(intact)))), intact);

let decodedLinks = 0, decodedStates = 0, refused = 0;
for (let i = 0; i < inputs; i++) {
  const raw = made();
  const json = JSON.stringify(raw) ?? "undefined";
  // Half of the inputs pass through the whole decoder, damaged or not; the others only through its check.
  let decoded = null, link = null;
  try {
    if (i % 2) {
      const cut = random() < 0.1 ? json.slice(0, Math.floor(random() * json.length)) : json;
      link = encode(deflateRawSync(cut));
      if (random() < 0.5) link = damaged(link);
      decoded = await page.fromLink(link);
    } else {
      decoded = page.checkedState(JSON.parse(json));
    }
  } catch (error) {
    if (!(error instanceof Error)) throw new Error(`not an Error: ${String(error)} for ${link ?? json}`);
    refused++;
    continue;
  }
  check(decoded, link ?? json);
  if (link) decodedLinks++; else decodedStates++;
}
console.log(`${inputs} inputs: ${decodedLinks} links and ${decodedStates} states decoded, ${refused} refused, none hostile`);
if (!decodedLinks || !decodedStates || !refused) throw new Error("all inputs were decoded, or none: this tests nothing");
