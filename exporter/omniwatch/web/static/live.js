// The live page: asks the sidecar for what is new each second and shows it. /live.json is described in the manual, docs/live-page.md.
"use strict";
(() => {
  const SCHEMA = 1;
  const EACH_MS = 1000;
  const ANSWER_MS = 5000;
  /** Milliseconds between questions at most: after failures in a row, and where the sidecar asks for fewer. */
  const FAILING_MS = 5000, BUSY_MS = 30000;
  const MOST_SAMPLES = 900;
  /** Curves drawn at once: more cannot be told apart. */
  const CURVES = 8;
  /** A curve stays while its listener is among so many of the worst, so that curves do not take turns. */
  const KEPT_WITHIN = 12;
  const TURNS = 50;
  const HOUR_S = 3600;
  /** Columns of a waterfall as `omniwatch explain` prints it. */
  const COLUMNS = 64;
  const DASHES = [[], [8, 3], [2, 3], [10, 3, 2, 3], [5, 5]];
  const SIGNS = { well: "✓", suffers: "▲", blind: "?" };
  const STILL_EACH = 5;
  const LANGUAGE = "omniwatch.language", RELOADED = "omniwatch.reloaded";
  const SVG = "http://www.w3.org/2000/svg";

  const at = (id) => document.getElementById(id);
  const stills = matchMedia("(prefers-reduced-motion: reduce)");
  const inks = matchMedia("(prefers-color-scheme: dark)");

  // A store may be forbidden, and then nothing is remembered.
  const recall = (store, name) => { try { return window[store].getItem(name); } catch { return null; } };
  const remember = (store, name, value) => {
    try { if (value === null) window[store].removeItem(name); else window[store].setItem(name, value); return true; } catch { return false; }
  };

  /** Return an element with attributes and children; a string is text, never markup. */
  function make(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function draw(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Only what changed is written: else a page would lay itself out anew each second.
  const told = new WeakMap();
  function tell(element, text) {
    if (told.get(element) !== text) { told.set(element, text); element.textContent = text; }
  }
  function mark(element, name, value) {
    if (value === null) { if (element.hasAttribute(name)) element.removeAttribute(name); }
    else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }

  // -- words ------------------------------------------------------------------------------------------------------------

  let texts = { en: {}, zh: {} };
  const preferred = () => (navigator.languages || []).find((name) => /^(zh|en)\b/i.test(name)) || "en";
  let language = recall("localStorage", LANGUAGE) || preferred().slice(0, 2).toLowerCase();
  if (language !== "zh") language = "en";

  const knows = (key) => key in texts[language];
  function words(key, values = {}) {
    const text = texts[language][key] ?? texts.en[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (all, name) => (name in values ? values[name] : all));
  }
  /** The word for a value of a kind, such as cause.network; a value that is not known is shown as it is. */
  const word = (kind, value) => (knows(`${kind}.${value}`) ? words(`${kind}.${value}`) : String(value));

  const shape = (options) => new Intl.DateTimeFormat("en-GB", options);
  const second = shape({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const minute = shape({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const time = (t) => second.format(t * 1000);
  const day = (t) => new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" }).format(t * 1000);
  const signed = (value, digits = 0) => {
    const shown = Math.abs(value).toFixed(digits);
    return (value < 0 && Number(shown) !== 0 ? "−" : value > 0 && Number(shown) !== 0 ? "+" : "") + shown;
  };
  const NONE = "–";
  const ms = (value) => (value === null || value === undefined ? NONE : `${value.toFixed(0)} ms`);
  const drifts = (value) => (value === null || value === undefined ? NONE : `${signed(value)} ms`);
  const span = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
  const gigabytes = (bytes) => `${(bytes / 1e9).toFixed(1)} GB`;
  const named = (slot) => (slot === null ? NONE : `#${slot}`);

  // -- what is known ----------------------------------------------------------------------------------------------------

  let feed = null;
  const past = { step: 1, start: 0, next: 0, times: [], columns: new Map() };
  let states = [];
  let turns = [];
  let focused = null;
  let shown = [];

  const key = (one) => `${one.rule} ${one.slot} ${one.state} ${one.start}`;

  /** Take an answer of the feed. Return false where there is a hole before it. */
  function take(news) {
    const { history } = news;
    if (!news.reset && history.count && history.first !== past.next) return false;
    if (news.reset) {
      Object.assign(past, { step: history.step, next: history.first, times: [], columns: new Map() });
      [states, turns] = [[], []];
    }
    grow(history);
    const oldest = past.times.length ? past.times[0] : news.now - MOST_SAMPLES * past.step;
    const kept = new Map(states.map((one) => [key(one), one]));
    for (const one of news.states) kept.set(key(one), one);
    states = [...kept.values()].filter((one) => one.end === null || one.end >= oldest);
    turns = turns.concat(news.turns).filter((turn) => news.replay || turn.t >= news.now - HOUR_S);
    feed = news;
    return true;
  }

  function grow({ first, start, step, count, columns }) {
    const { times } = past;
    for (let i = 0; i < count; i++) times.push(start + i * step);
    for (const [slot, column] of Object.entries(columns)) {
      if (!past.columns.has(slot)) past.columns.set(slot, { drift: [], rtt: [] });
      const own = past.columns.get(slot);
      for (const name of ["drift", "rtt"]) {
        while (own[name].length < times.length - count) own[name].push(null);
        for (let i = 0; i < count; i++) own[name].push(column[name] ? column[name][i] : null);
      }
    }
    const over = Math.max(0, times.length - MOST_SAMPLES);
    times.splice(0, over);
    for (const [slot, own] of past.columns) {
      for (const name of ["drift", "rtt"]) {
        while (own[name].length < times.length + over) own[name].push(null);
        own[name].splice(0, over);
      }
      if (count && over && !own.drift.some(Number.isFinite) && !own.rtt.some(Number.isFinite)) past.columns.delete(slot);
    }
    if (count) past.next = first + count;
  }

  /** Choose whose curves are drawn: the focused listener's alone, or the worst ones', and of those who left if there is room. */
  function choose() {
    if (focused !== null && !past.columns.has(String(focused))) focused = null;
    if (focused !== null) { shown = [focused]; return; }
    const here = feed.listeners.map((one) => one.slot).filter((slot) => slot !== null && past.columns.has(String(slot)));
    const gone = [...past.columns.keys()].map(Number).filter((slot) => !here.includes(slot));
    const ranked = [...here, ...gone];
    const stay = shown.filter((slot) => ranked.slice(0, KEPT_WITHIN).includes(slot));
    const worst = ranked.slice(0, CURVES / 2);
    shown = [...new Set([...worst, ...stay, ...ranked])].slice(0, CURVES).sort((a, b) => a - b);
  }

  // -- curves -----------------------------------------------------------------------------------------------------------

  const paints = {};
  function readPaints() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "line", "ground", "pending", "firing"]) paints[name] = style.getPropertyValue(`--${name}`);
    paints.curves = DASHES.concat(DASHES).slice(0, 8).map((_, number) => style.getPropertyValue(`--curve-${number}`));
    paints.size = parseFloat(style.fontSize) * 0.8;
  }
  const colour = (slot) => paints.curves[slot % paints.curves.length];
  const dash = (slot) => DASHES[(slot + Math.floor(slot / 8)) % DASHES.length];

  class Curve {
    /** `of` is a column of the history; `text` writes one of its values. */
    constructor(id, of, text) {
      Object.assign(this, { box: at(`${id}-curve`), readout: at(`${id}-readout`), id, of, text, t: null, plot: null, marked: [] });
      this.box.addEventListener("keydown", (event) => this.press(event));
      this.box.addEventListener("blur", () => this.point(null));
      new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(this.box);
    }

    get rule() { return feed.rules.find((rule) => rule.of === this.of); }
    size() { return { width: this.box.clientWidth, height: this.box.clientHeight }; }
    column(slot) { return slot === undefined || !past.columns.has(String(slot)) ? [] : past.columns.get(String(slot))[this.of]; }

    make() {
      const font = `${paints.size}px system-ui, sans-serif`;
      const axis = { stroke: paints.soft, font, grid: { stroke: paints.line, width: 1 }, ticks: { stroke: paints.line, width: 1 } };
      const series = Array.from({ length: CURVES }, (_, place) => ({
        stroke: () => (place < shown.length ? colour(shown[place]) : paints.soft),
        width: Math.max(1.5, paints.size / 6.5), spanGaps: false, points: { show: false },
        paths: this.of === "rtt" ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }));
      const options = {
        ...this.size(), series: [{}, ...series], legend: { show: false }, padding: [paints.size * 0.7, paints.size * 2.6, 0, 0],
        cursor: { drag: { x: false, y: false }, y: false, focus: { prox: -1 }, points: { show: false } },
        scales: { x: { time: true, auto: false }, y: { range: (_, low, high) => this.range(low, high) } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((t) => minute.format(t * 1000)), space: paints.size * 5, size: paints.size * 2.2,
            incrs: [60, 120, 180, 300, 600, 900, 1800, 3600] },
          { ...axis, size: paints.size * 4.6, values: (_, splits) => splits.map((y) => String(y).replace("-", "−")) },
        ],
        hooks: {
          drawClear: [(plot) => this.shade(plot)], draw: [(plot) => this.label(plot)],
          setCursor: [(plot) => this.read(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
        },
      };
      if (this.plot) this.plot.destroy();
      this.plot = new uPlot(options, this.data(), this.box);
    }

    data() { return [past.times, ...Array.from({ length: CURVES }, (_, place) => this.padded(shown[place]))]; }
    padded(slot) {
      const column = this.column(slot);
      return column.length === past.times.length ? column : new Array(past.times.length).fill(null);
    }

    range(low, high) {
      const level = this.rule.threshold;
      const top = Math.max(high ?? 0, level);
      if (this.of === "rtt") return [0, top * 1.15];
      const bottom = Math.min(low ?? 0, -level);
      const room = (top - bottom) * 0.12;
      return [bottom - room, top + room];
    }

    show() {
      const until = feed.replay ? feed.now : past.times.at(-1) ?? feed.now;
      if (!this.plot) this.make();
      shown.forEach((slot, place) => { this.plot.series[place + 1].dash = dash(slot).map((length) => length * devicePixelRatio); });
      this.plot.batch(() => {
        this.plot.setData(this.data(), false);
        this.plot.setScale("x", { min: until - MOST_SAMPLES * past.step, max: until });
      });
      if (this.t !== null) this.point(this.t);
      else if (!(this.plot.cursor.left >= 0)) this.read(null);
      mark(this.box, "aria-label", words(`page.${this.id}-cursor`));
      mark(this.box, "aria-valuemin", "0");
      mark(this.box, "aria-valuemax", String(Math.max(0, past.times.length - 1)));
    }

    /** Shade where the rule would be pending or firing: by hatching, and by a word where it fits. */
    shade(plot) {
      const { ctx, bbox } = plot;
      const from = plot.scales.x.min, to = plot.scales.x.max;
      this.marked = [];
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const state of ["pending", "firing"]) {
        for (const [start, end] of merged(states.filter((one) => this.marks(one, state)), to)) {
          const left = plot.valToPos(Math.max(start, from), "x", true), right = plot.valToPos(Math.min(end, to), "x", true);
          if (right <= left) continue;
          this.band(ctx, bbox, state, left, right);
          this.marked.push(state);
        }
      }
      ctx.restore();
    }

    marks(one, state) {
      return one.state === state && one.rule === this.rule.name && (focused === null || one.slot === focused);
    }

    band(ctx, bbox, state, left, right) {
      const gap = (state === "firing" ? 7 : 14) * devicePixelRatio;
      ctx.fillStyle = ctx.strokeStyle = paints[state];
      ctx.globalAlpha = state === "firing" ? 0.2 : 0.12;
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.globalAlpha = 0.5;
      ctx.lineWidth = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, bbox.top, right - left, bbox.height);
      ctx.clip();
      ctx.beginPath();
      for (let x = left - bbox.height - ((left - bbox.height) % gap); x < right; x += gap) {
        ctx.moveTo(x, bbox.top + bbox.height);
        ctx.lineTo(x + (state === "firing" ? bbox.height : 0), bbox.top);
      }
      ctx.stroke();
      ctx.restore();
      ctx.globalAlpha = 1;
      this.write(ctx, word("rule", state), left + 4 * devicePixelRatio, bbox.top + paints.size * devicePixelRatio, right - left);
    }

    write(ctx, text, x, y, room = Infinity, ink = paints.ink) {
      ctx.font = `${paints.size * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      const width = ctx.measureText(text).width;
      if (width > room) return;
      ctx.globalAlpha = 0.75;
      ctx.fillStyle = paints.ground;
      ctx.fillRect(x - 2, y - paints.size * 0.6 * devicePixelRatio, width + 4, paints.size * 1.2 * devicePixelRatio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = ink;
      ctx.fillText(text, x, y);
    }

    /** Draw the thresholds, and name each curve at its end, apart where they end close together. */
    label(plot) {
      const { ctx, bbox } = plot;
      const level = this.rule.threshold;
      ctx.save();
      ctx.strokeStyle = paints.ink;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      for (const y of this.of === "drift" ? [level, -level] : [level]) {
        const height = plot.valToPos(y, "y", true);
        ctx.beginPath();
        ctx.moveTo(bbox.left, height);
        ctx.lineTo(bbox.left + bbox.width, height);
        ctx.stroke();
        this.write(ctx, this.text(y), bbox.left + 4, height);
      }
      const ends = shown.map((slot) => [slot, this.column(slot).findLast(Number.isFinite)]).filter(([, y]) => y !== undefined);
      let lowest = Infinity;
      for (const [slot, y] of ends.sort((a, b) => a[1] - b[1])) {
        const height = Math.min(plot.valToPos(y, "y", true), lowest);
        lowest = height - paints.size * 1.2 * devicePixelRatio;
        this.write(ctx, named(slot), bbox.left + bbox.width + 4, height, Infinity, colour(slot));
      }
      ctx.restore();
      // What was drawn, for whoever cannot look: a canvas tells nothing.
      mark(this.box, "data-series", ends.map(([slot]) => slot).sort((a, b) => a - b).join(" "));
      mark(this.box, "data-threshold", String(level));
      mark(this.box, "data-marks", this.marked.join(" "));
    }

    press(event) {
      const last = past.times.length - 1;
      const from = this.t === null ? last : nearest(this.t);
      const page = Math.max(1, Math.round(60 / past.step));
      const moves = {
        ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1,
        PageDown: from - page, PageUp: from + page, Home: 0, End: last,
      };
      if (event.key === "Escape") this.point(null);
      else if (event.key in moves && last >= 0) {
        event.preventDefault();
        this.point(past.times[Math.min(last, Math.max(0, moves[event.key]))]);
      }
    }

    /** Put the cursor at a time, where it stays while the curve moves on; null: away with it. */
    point(t) {
      if (!this.plot) return;
      this.t = t === null ? null : Math.max(t, past.times[0]);
      if (t === null) this.plot.setCursor({ left: -10, top: -10 });
      else this.plot.setCursor({ left: this.plot.valToPos(past.times[nearest(this.t)], "x"), top: 1 });
      this.read(t === null ? null : nearest(this.t));
    }

    /** Say the values at a sample; without one, the last. */
    read(index) {
      const i = index ?? past.times.length - 1;
      const values = shown.map((slot) => `${named(slot)} ${this.text(this.column(slot)[i])}`);
      const text = i < 0 ? words("page.no-samples") : [time(past.times[i]), ...values].join("  ");
      tell(this.readout, text);
      mark(this.box, "aria-valuenow", String(Math.max(0, i)));
      mark(this.box, "aria-valuetext", text);
    }
  }

  function nearest(t) {
    const i = Math.round((t - past.times[0]) / past.step);
    return Math.min(past.times.length - 1, Math.max(0, i));
  }

  function merged(found, to) {
    const spans = [];
    for (const one of [...found].sort((a, b) => a.start - b.start)) {
      const end = one.end ?? to, last = spans.at(-1);
      if (last && one.start <= last[1]) last[1] = Math.max(last[1], end);
      else spans.push([one.start, end]);
    }
    return spans;
  }

  let curves = [];
  let rounds = 0;

  function showCurves(anew) {
    rounds += 1;
    if (!anew && stills.matches && rounds % STILL_EACH) return;
    curves.forEach((curve) => curve.show());
    const more = past.columns.size - shown.length;
    tell(at("shown"), focused !== null ? words("page.only", { slot: named(focused) }) : more > 0 ? words("page.worst", { count: shown.length }) : "");
    showValues();
  }

  let tableOf = "";
  /** The curves as a table, a row a minute: the drift farthest from 0 and the longest round trip of it. */
  function showValues() {
    if (!at("table").open) { tableOf = ""; return; }
    const minutes = new Map();
    past.times.forEach((t, i) => minutes.set(Math.floor(t / 60), [...(minutes.get(Math.floor(t / 60)) || []), i]));
    const of = `${language} ${shown} ${[...minutes.keys()]}`;
    if (of === tableOf) return;
    tableOf = of;
    const heads = shown.flatMap((slot) => ["drift", "rtt"].map((name) => `${named(slot)} ${words(`page.${name}`)}`));
    const most = (column, chosen) => {
      const values = chosen.map((i) => column[i]).filter(Number.isFinite);
      return values.length ? values.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a)) : null;
    };
    const rows = [...minutes].reverse().map(([number, chosen]) => make("tr", {},
      make("th", { scope: "row" }, minute.format(number * 60000)),
      ...shown.flatMap((slot) => curves.map((curve) => make("td", { class: "number" }, curve.text(most(curve.column(slot), chosen)))))));
    at("values").replaceChildren(
      make("thead", {}, make("tr", {}, ...[words("page.time"), ...heads].map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows));
  }

  // -- rows -------------------------------------------------------------------------------------------------------------

  const LISTENER = ["listener", "state", "drift", "slope", "eta", "rtt", "ear", "underrun", "ahead", "resume", "bad"];
  const SOURCE = ["source", "up", "lag", "lost", "invalid", "error"];
  const NUMBERS = new Set(["drift", "slope", "eta", "rtt", "underrun", "ahead", "lag", "lost", "invalid"]);

  function heads(group, columns) {
    group.replaceChildren(make("tr", { role: "row" }, ...columns.map((name) =>
      make("th", { role: "columnheader", scope: "col", class: NUMBERS.has(name) ? "number" : null }, words(`page.${name}`)))));
  }

  class Rows {
    constructor(body, columns, first) { Object.assign(this, { body, columns, first, rows: [] }); }

    /** Show a row for each; `cells` gives texts by column, `under` says more of the row. */
    show(items, cells) {
      while (this.rows.length > items.length) this.rows.pop().row.remove();
      items.forEach((item, number) => {
        if (!this.rows[number]) this.rows[number] = this.add();
        const { cells: own, row } = this.rows[number], texts = cells(item, row, own);
        this.columns.forEach((name, place) => {
          if (texts[name] !== undefined) tell(own[place].text, texts[name]);
          mark(own[place].cell, "data-head", words(`page.${name}`));
        });
      });
    }

    add() {
      const row = make("tr", { role: "row" });
      const cells = this.columns.map((name, place) => {
        const text = place || !this.first ? make("span") : this.first();
        const cell = make("td", { role: "cell", class: NUMBERS.has(name) ? "number" : null }, text);
        row.append(cell);
        return { cell, text };
      });
      this.body.append(row);
      return { row, cells };
    }
  }

  function swatch() {
    return draw("svg", { class: "swatch", viewBox: "0 0 32 8", "aria-hidden": "true" }, draw("path", { d: "M0 4h32", fill: "none", "stroke-width": "2" }));
  }

  function chooser() {
    const button = make("button", { type: "button" }, swatch(), make("span"));
    button.addEventListener("click", () => {
      const slot = Number(button.dataset.slot);
      focused = focused === slot ? null : slot;
      showAll(true);
    });
    return button;
  }

  /** The first cell: a button that shows this listener's curves alone. */
  function showChooser(button, one) {
    const has = one.slot !== null && past.columns.has(String(one.slot));
    const kind = one.id === undefined ? one.kind : [one.kind, one.id, one.peer].filter(Boolean).join(" ");
    tell(button.lastChild, ` ${named(one.slot)}${kind ? ` ${kind}` : ""}`);
    mark(button, "data-slot", String(one.slot));
    mark(button, "aria-pressed", String(has && focused === one.slot));
    if (button.disabled !== !has) button.disabled = !has;
    const line = button.firstChild.firstChild;
    const drawn = shown.includes(one.slot);
    mark(line, "stroke", drawn ? colour(one.slot) : "none");
    mark(line, "stroke-dasharray", drawn && dash(one.slot).length ? dash(one.slot).join(" ") : null);
  }

  function listener(one, row, cells) {
    showChooser(cells[0].text, one);
    const rules = Object.entries(one.rules).map(([rule, state]) => `${rule} ${word("rule", state)}`);
    const firing = Object.values(one.rules).includes("firing");
    const sign = firing || one.suffers ? SIGNS.suffers : rules.length ? "△" : one.state === "away" ? "○" : SIGNS.well;
    const bad = one.suffers ? [`${word("symptom", one.suffers.symptom)}: ${word("cause", one.suffers.cause)}`] : [];
    mark(cells[1].text, "class", firing || one.suffers ? "bad" : null);
    return {
      state: `${sign} ${[word("listener", one.state), ...rules, ...bad].join(", ")}`,
      drift: drifts(one.drift_ms),
      slope: one.slope_ppm === null ? NONE : `${signed(one.slope_ppm)} ppm`,
      eta: one.eta_s === null ? NONE : one.eta_s === 0 ? words("page.past") : span(one.eta_s),
      rtt: one.rtt_ms === null ? NONE : `${ms(one.rtt_ms)} (${word("vantage", one.vantage)})`,
      ear: word("ear", one.ear),
      underrun: `${one.underrun_s.toFixed(1)} s`,
      ahead: one.ahead_s === null ? NONE : `${one.ahead_s.toFixed(1)} s`,
      resume: one.resume ? `${word("result", one.resume.result)} ${time(one.resume.t)}` : NONE,
      bad: one.bad ? `${verdict(one.bad)} ${time(one.bad.t)}` : NONE,
    };
  }

  const verdict = (one) =>
    `${word("symptom", one.symptom)}: ${word("cause", one.cause)}${one.excess_ms ? ` (${ms(one.excess_ms)})` : ""}`;

  function source(one, row, cells) {
    mark(cells[1].text, "class", one.up ? null : "bad");
    return {
      source: one.name, up: one.up ? `${SIGNS.well} ${words("page.reads")}` : `${SIGNS.suffers} ${words("page.reads-not")}`,
      lag: `${one.lag_s.toFixed(1)} s`, lost: String(one.lost), invalid: String(one.invalid), error: one.error || NONE,
    };
  }

  let order = [];
  /** The listeners, the worst first; but while somebody points at a row, or is in one by keyboard, as they stood. */
  function ordered() {
    const found = [...feed.listeners];
    if (at("listeners").matches(":hover, :focus-within")) {
      const place = (one) => (order.includes(one.slot) ? order.indexOf(one.slot) : order.length);
      found.sort((a, b) => place(a) - place(b));
    }
    order = found.map((one) => one.slot);
    return found;
  }

  const listeners = new Rows(at("listeners"), LISTENER, chooser);
  const sources = new Rows(at("sources"), SOURCE);

  // -- bad turns --------------------------------------------------------------------------------------------------------

  const items = new Map();

  let turnsOf = "";
  function showTurns() {
    // Numbers begin anew with another run.
    const of = `${language} ${feed.run}`;
    if (of !== turnsOf) { turnsOf = of; items.clear(); at("turns").replaceChildren(); }
    const newest = turns.slice(-TURNS);
    const kept = new Set(newest.map((turn) => turn.number));
    for (const [number, item] of items) if (!kept.has(number)) { item.remove(); items.delete(number); }
    for (const turn of newest) {
      if (items.has(turn.number)) continue;
      const item = bad(turn);
      items.set(turn.number, item);
      at("turns").prepend(item);
    }
    const less = turns.length > TURNS ? ` ${words("page.newest", { count: TURNS })}` : "";
    tell(at("judged"), words(turns.length ? "page.judged" : "page.none-bad", { bad: turns.length, judged: feed.turns_judged }) + less);
  }

  function bad(turn) {
    const said = turn.verdicts.map((one) => `${verdict(one)}, ${word("certainty", one.certainty)}`).join("; ");
    const head = make("summary", {}, `${time(turn.t)} ${named(turn.slot < 0 ? null : turn.slot)} ${said}`);
    const body = make("div", { class: "waterfall" });
    const opened = make("details", { "data-number": turn.number }, head, body);
    opened.addEventListener("toggle", () => { if (opened.open && !body.dataset.had) unfold(turn, body); });
    return make("li", {}, opened);
  }

  async function unfold(turn, body) {
    const says = make("p", {}, words("page.asking"));
    body.replaceChildren(says);
    try {
      const { answer, content } = await request(`${feed.links.turns}?number=${encodeURIComponent(turn.number)}`);
      if (!content) { tell(says, words(answer.status === 404 ? "page.forgotten" : "page.not-had")); return; }
      body.dataset.had = "";
      body.replaceChildren(...waterfall(content.text), ...turn.verdicts.map(advice).filter(Boolean));
    } catch {
      tell(says, words("page.not-had"));
    }
  }

  function advice(one) {
    const path = (feed.links.by_symptom || {})[one.symptom];
    if (!path) return null;
    const name = path.split("/").pop();
    return make("p", {}, make("a", { href: `${path}#${encodeURIComponent(one.cause)}` }, words("page.advice", { runbook: name, cause: word("cause", one.cause) })));
  }

  /** Draw the lines that `omniwatch explain` prints: a row for each piece of the turn, then what the verdict rests on. */
  function waterfall(text) {
    const rows = [], rest = [];
    let heading = null;
    for (const line of text.split("\n")) {
      const row = /^(\w+) +(-?[\d.]+ s)(?:  (.*))?$/.exec(line);
      if (row && !rest.length) rows.push(piece(row[1], row[2], row[3] || ""));
      else if (heading === null) heading = line;
      else if (line || rest.length) rest.push(line);
    }
    return [make("p", {}, heading || ""), ...rows, make("pre", {}, rest.join("\n"))];
  }

  function piece(name, seconds, drawn) {
    const svg = draw("svg", { viewBox: `0 0 ${COLUMNS} 8`, preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const run of drawn.matchAll(/█+|░+|\|/g)) {
      const x = run.index, width = run[0].length;
      if (run[0][0] === "░") svg.append(draw("path", { class: "gap", d: `M${x} 8L${x + width} 0M${x} 0L${x + width} 8` }));
      else if (run[0][0] === "|") svg.append(draw("rect", { class: "bar", x: x + 0.3, y: 1, width: 0.4, height: 6 }));
      else svg.append(draw("rect", { class: "bar", x, y: 1, width, height: 6 }));
    }
    const label = knows(`page.piece-${name}`) ? words(`page.piece-${name}`) : name;
    return make("div", {}, make("span", {}, label), make("span", { class: "number" }, seconds), svg);
  }

  // -- the rest ---------------------------------------------------------------------------------------------------------

  let announced = "";
  function showState() {
    const { key: name, level, arguments: values, since } = feed.state;
    const said = { ...values };
    if (said.slots) said.slots = said.slots.map(named).join(", ");
    if (said.symptom) said.symptom = word("symptom", said.symptom);
    if (said.cause) said.cause = word("cause", said.cause);
    if (typeof said.seconds === "number") said.seconds = Math.round(said.seconds);
    if (since !== null) said.since = time(since);
    const text = words(since === null && knows(`state.${name}.now`) ? `state.${name}.now` : `state.${name}`, said);
    const line = at("sentence");
    tell(line, `${SIGNS[level]} ${text}`);
    mark(line, "class", level);
    document.title = `${SIGNS[level]} ${text.slice(0, 60)} – Omniwatch`;
    // A count of seconds goes on each second; that is no news to somebody who is being read to.
    const news = JSON.stringify([language, name, { ...values, seconds: null, count: null }]);
    if (news !== announced) { announced = news; tell(at("announced"), text); }
  }

  const deviceItems = new Map();
  function showDevice() {
    const found = [...readings(feed.device)];
    for (const [name, { group }] of deviceItems) if (!found.some(([own]) => own === name)) { group.remove(); deviceItems.delete(name); }
    for (const [name, label, value] of found) {
      if (!deviceItems.has(name)) {
        const term = make("dt"), says = make("dd"), group = make("div", {}, term, says);
        at("device").append(group);
        deviceItems.set(name, { group, term, says });
      }
      tell(deviceItems.get(name).term, label);
      tell(deviceItems.get(name).says, value);
    }
    at("machine").hidden = !found.length;
  }

  /** What the machine has: name, its label, its value. What it lacks is not there. */
  function* readings(own) {
    const has = (name) => own[name] !== undefined && own[name] !== null;
    const label = (name) => words(`page.device.${name}`);
    if (has("throttled_share")) yield ["throttled", label("throttled"), `${(own.throttled_share * 100).toFixed(0)} %`];
    if (has("quota_cores")) yield ["quota", label("quota"), `${own.quota_cores.toFixed(1)}`];
    if (has("slowed_by")) yield ["slowed", label("slowed"), own.slowed_by.join(", ") || words("page.nothing")];
    if (has("overcurrents")) yield ["overcurrents", label("overcurrents"), String(own.overcurrents)];
    for (const { zone, celsius, limit_celsius: limit } of own.heat || []) {
      const of = limit === undefined || limit === null ? "" : ` / ${limit.toFixed(0)} °C`;
      yield [`heat ${zone}`, `${label("heat")} ${zone}`, `${celsius.toFixed(0)} °C${of}`];
    }
    if (has("memory_available_bytes")) {
      const of = has("memory_total_bytes") ? ` / ${gigabytes(own.memory_total_bytes)}` : "";
      yield ["memory", label("memory"), gigabytes(own.memory_available_bytes) + of];
    }
    for (const { rail, watts } of own.power || []) yield [`power ${rail}`, `${label("power")} ${rail}`, `${watts.toFixed(1)} W`];
    if (has("gpu_load")) yield ["gpu", label("gpu"), `${(own.gpu_load * 100).toFixed(0)} %`];
    if (has("power_mode")) yield ["mode", label("mode"), own.power_mode];
  }

  function showAll(anew) {
    if (!feed) return;
    if (anew) readPaints();
    choose();
    tell(at("device-name"), feed.device_name);
    tell(at("version"), feed.version);
    showState();
    showCurves(anew);
    listeners.show(ordered(), listener);
    tell(at("more"), feed.more ? words("page.more", { count: feed.more }) : feed.listeners.length || feed.state.level === "blind" ? "" : words("page.nobody"));
    showTurns();
    showDevice();
    sources.show(feed.sources, source);
    showRecording();
    at("live").hidden = false;
  }

  function showWords() {
    mark(document.documentElement, "lang", language);
    for (const element of document.querySelectorAll("[data-words]")) tell(element, words(element.dataset.words));
    heads(at("listener-heads"), LISTENER);
    heads(at("source-heads"), SOURCE);
    const other = language === "zh" ? "en" : "zh";
    tell(at("language"), other === "zh" ? "中文" : "English");
    mark(at("language"), "lang", other);
    at("language").hidden = false;
    showTrouble();
    if (feed) { curves.forEach((curve) => curve.make()); showAll(true); }
  }

  // -- a recording ------------------------------------------------------------------------------------------------------

  let moment = null;
  function showRecording() {
    const recording = feed.replay;
    at("replay").hidden = !recording;
    if (!recording) return;
    const slider = at("moment");
    mark(slider, "min", "0");
    mark(slider, "max", String(recording.moments - 1));
    if (moment === null) { moment = recording.moment; slider.value = String(moment); }
    const into = span(moment * recording.step), whole = span((recording.moments - 1) * recording.step);
    const shownT = feed.now + (moment - recording.moment) * recording.step;
    mark(slider, "aria-valuetext", `${time(shownT)}, ${into}`);
    tell(at("moment-shown"), `${time(shownT)} (${into} / ${whole})`);
    const thinned = past.step > 1 ? ` ${words("page.thinned", { step: past.step })}` : "";
    tell(at("recording"), `${recording.file}, ${day(shownT)}${thinned}`);
  }

  at("moment").addEventListener("input", () => {
    moment = Number(at("moment").value);
    showRecording();
    ask();
  });

  // -- the feed ---------------------------------------------------------------------------------------------------------

  let cursor = null, timer = null, asking = false, again = false, failures = 0;
  let trouble = null;

  /** Say what stands between the page and the sidecar; null: nothing does. */
  function say(name, values = {}) {
    trouble = name && { name, values };
    showTrouble();
  }

  function showTrouble() {
    const box = at("trouble");
    tell(box, trouble ? words(`page.${trouble.name}`, trouble.values) : "");
    box.hidden = !trouble;
    document.body.classList.toggle("stale", trouble !== null && trouble.name !== "busy");
  }

  const later = (wait) => { clearTimeout(timer); timer = setTimeout(ask, wait); };

  async function request(path) {
    const stop = new AbortController(), limit = setTimeout(() => stop.abort(), ANSWER_MS);
    try {
      const answer = await fetch(path, { signal: stop.signal, cache: "no-store" });
      return { answer, content: answer.ok ? await answer.json() : null };
    } finally {
      clearTimeout(limit);
    }
  }

  function path() {
    const since = feed && feed.replay ? `at.${moment}` : cursor;
    return since === null ? "/live.json" : `/live.json?since=${encodeURIComponent(since)}`;
  }

  async function ask() {
    clearTimeout(timer);
    if (asking) { again = true; return; }
    if (document.hidden) return;
    asking = true;
    const began = performance.now();
    let wait = FAILING_MS;
    try {
      wait = await attempt();
    } finally {
      asking = false;
      if (wait !== null) later(Math.max(50, wait - (wait === EACH_MS ? performance.now() - began : 0)));
      if (again) { again = false; ask(); }
    }
  }

  /** Ask once; return after how many milliseconds to ask again, or null: never. */
  async function attempt() {
    let got;
    try {
      if (!texts.en["page.curves"]) await learn();
      got = await request(path());
    } catch {
      return lost();
    }
    const { answer, content } = got;
    if (answer.status === 401) { say("login"); return null; }
    if (answer.status === 403) { say("forbidden"); return BUSY_MS; }
    if (answer.status === 429 || answer.status === 503) return busy(Number(answer.headers.get("Retry-After")));
    if (!content) return lost();
    return receive(content);
  }

  function lost() {
    failures += 1;
    say("gone", { since: time(feed ? lastHeard : opened) });
    return Math.min(FAILING_MS, EACH_MS * failures);
  }

  function busy(asked) {
    failures += 1;
    say("busy");
    return Math.min(BUSY_MS, Math.max(asked * 1000 || 0, EACH_MS * 2 ** failures));
  }

  const opened = Date.now() / 1000;
  let lastHeard = opened;

  function receive(content) {
    if (content.schema !== SCHEMA) return misfit(content.schema);
    remember("sessionStorage", RELOADED, null);
    const first = feed === null;
    if (!take(content)) { cursor = null; return 0; }
    failures = 0;
    lastHeard = Date.now() / 1000;
    cursor = content.cursor;
    if (trouble) say(null);
    showAll(first || content.reset);
    return content.replay ? null : EACH_MS;
  }

  /** A feed of another schema is another version's: load its page, once. */
  function misfit(schema) {
    const known = recall("sessionStorage", RELOADED) === String(schema);
    if (!known && remember("sessionStorage", RELOADED, String(schema))) { location.reload(); return null; }
    say("misfit", { schema, own: SCHEMA });
    return BUSY_MS;
  }

  async function learn() {
    const { content } = await request("/static/strings.json");
    if (!content) throw new Error("no words");
    texts = content;
    showWords();
  }

  at("language").addEventListener("click", () => {
    language = language === "zh" ? "en" : "zh";
    remember("localStorage", LANGUAGE, language);
    showWords();
  });
  at("table").addEventListener("toggle", () => { if (feed) showValues(); });
  inks.addEventListener("change", () => { if (feed) { readPaints(); curves.forEach((curve) => curve.make()); showAll(true); } });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !(trouble && trouble.name === "login")) ask(); });

  curves = [new Curve("drift", "drift", drifts), new Curve("rtt", "rtt", ms)];
  ask();
})();
