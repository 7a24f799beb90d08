// What the server knows, drawn. Everything that comes from a task or a candidate is put on the page as text.
"use strict";

const KEPT = 2000;
const EVERY = 2000;
const main = document.getElementById("main");
const status = document.getElementById("status");
const entry = document.getElementById("entry");
let token = sessionStorage.getItem("token") || "";
let state = null;
let verdicts = [];
let page = null;

/** An element with classes, attributes and children; text is text. */
function make(name, options, ...children) {
  const svg = ["svg", "circle", "line", "text", "title"].includes(name) && options && options.svg;
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(options || {})) {
    if (key !== "svg") made.setAttribute(key, value);
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

async function ask(path) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { headers });
  if (answer.status === 401) {
    entry.hidden = false;
    throw new Error("the server requires a token");
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Error(problem.detail || "the server answers with " + answer.status);
  }
  entry.hidden = true;
  return answer.json();
}

function figure(value, digits) {
  return value === null || value === undefined ? "" : value.toFixed(digits);
}

function times(interval) {
  if (!interval) return "";
  return figure(interval.value, 2) + "× [" + figure(interval.low, 2) + "–" + figure(interval.high, 2) + "]";
}

function outcome(line) {
  const word = line.verified ? "verified" : (line.failure || "not verified").replaceAll("_", " ");
  const shown = make("span", { class: line.verified ? "good" : "bad" }, word);
  return line.integrity ? make("span", {}, shown, make("span", { class: "warn" }, " integrity")) : shown;
}

function card(value, what) {
  return make("div", { class: "card" }, make("b", {}, value), make("span", {}, what));
}

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map(([text, kind]) => make("th", { class: kind || "" }, text)));
  const body = rows.map((row) => make("tr", {},
    ...row.map((cell, at) => make("td", { class: heads[at][1] || "" }, cell))));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function lines(of) {
  const heads = [["", "number"], ["Time"], ["Task"], ["Outcome"], ["Speedup over eager", "number"],
    ["Speedup over best baseline", "number"], ["Judged in", "number"], ["By"]];
  const rows = of.map((line) => [
    make("a", { href: "#/verdict/" + line.number }, line.number),
    new Date(line.time).toLocaleTimeString(),
    make("a", { href: "#/task/" + encodeURIComponent(line.task) }, line.task),
    outcome(line), times(line.over_eager), times(line.over_best),
    figure(line.seconds, 1) + " s", line.by]);
  return table(heads, rows);
}

function device(one) {
  const use = one.use;
  const meter = make("meter", { min: 0, max: 1, value: use ? use.busy : 0 });
  const by = use ? use.by.map(([what, share]) => what + " " + Math.round(100 * share) + " %").join(", ") : "";
  return [one.device, one.hardware,
    make("span", {}, meter, " " + (use ? Math.round(100 * use.busy) + " %" : "")), by];
}

function overview() {
  const right = verdicts.filter((line) => line.verified).length;
  return [
    make("div", { class: "cards" }, card(state.waiting, "waiting"), card(state.running, "running"),
      card(state.workers, "workers"), card(state.sessions, "sessions"),
      card(figure(state.seconds, 1) + " s", "per verdict (moving average)"),
      card(verdicts.length ? Math.round((100 * right) / verdicts.length) + " %" : "–",
        "verified, of the last " + verdicts.length)),
    make("h2", {}, "Devices"),
    table([["Device"], ["Hardware"], ["In use"], ["By"]], state.devices.map(device)),
    make("h2", {}, "Verdicts"),
    verdicts.length ? lines(verdicts.slice(-200).reverse())
      : make("p", { class: "faint" }, "None yet. Send a candidate to POST /judge; GET /openapi.json describes the request.")];
}

/** Speed-ups over the best baseline, one after the other; on a scale of factors. */
function history(of) {
  const [wide, high, edge] = [800, 190, 34];
  const known = of.filter((line) => line.over_best).map((line) => line.over_best.value);
  const most = Math.max(1.5, ...known), least = Math.min(0.75, ...known);
  const up = (value) => edge / 2 + (high - edge) * (1 - Math.log(value / least) / Math.log(most / least));
  const across = (at) => edge + ((wide - 2 * edge) * at) / Math.max(1, of.length - 1);
  const points = of.map((line, at) => {
    const right = line.over_best;
    const point = make("circle", { svg: 1, class: right ? "point" : "failed", cx: across(at), r: 4,
      cy: right ? up(line.over_best.value) : high - edge / 3 });
    point.append(make("title", { svg: 1 }, "verdict " + line.number + ": " +
      (right ? times(line.over_best) : line.failure || "no speed-up")));
    return point;
  });
  const marks = [most, 1, least].map((value) =>
    make("text", { svg: 1, x: 2, y: up(value) + 4 }, figure(value, 2) + "×"));
  return make("svg", { svg: 1, viewBox: "0 0 " + wide + " " + high, role: "img",
    "aria-label": "Speed-ups over the best baseline, in the order of verdicts" },
  make("line", { svg: 1, class: "even", x1: edge, x2: wide, y1: up(1), y2: up(1) }), ...marks, ...points);
}

function ofTask(name) {
  const of = verdicts.filter((line) => line.task === name);
  return [make("h2", {}, name), history(of),
    make("p", { class: "faint" }, "Speedup over the best baseline. Red: no speedup was measured."), lines(of.slice().reverse())];
}

function ofVerdict(one) {
  const verdict = one.verdict;
  const shown = [make("h2", {}, "Verdict " + one.number + ": ",
    make("a", { href: "#/task/" + encodeURIComponent(one.task) }, one.task), ", ", outcome(one)),
  make("p", {}, "Over eager " + (times(one.over_eager) || "–") + ", over the best baseline " +
    (times(one.over_best) || "–") + (verdict.speedup.best_baseline ? " (" + verdict.speedup.best_baseline + ")" : "") +
    ", on " + verdict.device + ", profile " + verdict.profile + ", judged in " + figure(one.seconds, 1) + " s"),
  make("p", { class: "faint" }, "candidate " + verdict.candidate)];
  if (verdict.failure) {
    shown.push(make("h2", { class: "bad" }, "What went wrong"), make("pre", { class: "message" }, verdict.failure.message));
  }
  if (verdict.integrity.length) {
    shown.push(make("h2", { class: "warn" }, "Integrity"),
      ...verdict.integrity.map((found) => make("pre", {}, JSON.stringify(found, null, 2))));
  }
  const timed = Object.entries(verdict.times_ms).filter(([, of]) => of);
  if (timed.length) {
    const most = Math.max(...timed.map(([, of]) => of.value));
    shown.push(make("h2", {}, "Times"), table([["What"], ["ms", "number"], ["95 %", "number"], [""]],
      timed.map(([what, of]) => [what.replaceAll("_", " "), figure(of.value, 4),
        figure(of.low, 4) + "–" + figure(of.high, 4),
        make("meter", { min: 0, max: most, value: of.value })])));
  }
  if (verdict.checks.length) {
    shown.push(make("h2", {}, "Checks"), table([["Check"], ["Outcome"], ["Largest error", "number"],
      ["The reference's", "number"]], verdict.checks.map((check) => [check.name,
      make("span", { class: check.passed ? "good" : "bad" }, check.passed ? "passed" : "failed"),
      check.max_abs_error === null ? "" : check.max_abs_error.toExponential(1),
      check.reference_max_abs_error === null ? "" : check.reference_max_abs_error.toExponential(1)])));
  }
  for (const caveat of verdict.caveats) shown.push(make("p", { class: "faint" }, caveat));
  const files = Object.entries(one.files);
  for (const [name, text] of [...files, ["model.py", one.reference]]) {
    shown.push(make("h2", {}, name), make("pre", {}, text));
  }
  return shown;
}

function draw() {
  if (!state) return;
  const [, where, what] = location.hash.split("/");
  if (where === "verdict") {
    if (page && String(page.number) === what) {
      // It does not change: who reads it is not disturbed.
      if (main.dataset.page !== what) main.replaceChildren(...ofVerdict(page));
      main.dataset.page = what;
    }
    return;
  }
  delete main.dataset.page;
  main.replaceChildren(...(where === "task" ? ofTask(decodeURIComponent(what || "")) : overview()));
}

async function look() {
  try {
    const last = verdicts.length ? verdicts[verdicts.length - 1].number : 0;
    state = await ask("/dashboard/state?after=" + last);
    verdicts = verdicts.concat(state.verdicts).slice(-KEPT);
    const [, where, what] = location.hash.split("/");
    if (where === "verdict" && (!page || String(page.number) !== what)) {
      page = await ask("/dashboard/verdicts/" + encodeURIComponent(what || ""));
    }
    status.className = state.ending ? "bad" : "";
    status.textContent = (state.ending ? "ending, " : "") + "version " + state.version +
      ", profile " + state.profile + ", " + new Date().toLocaleTimeString();
    draw();
  } catch (error) {
    status.className = "bad";
    status.textContent = error.message;
  }
}

async function forever() {
  await look();
  setTimeout(forever, EVERY);
}

entry.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  // For this tab, until it is closed.
  sessionStorage.setItem("token", token);
  look();
});
window.addEventListener("hashchange", look);
forever();
