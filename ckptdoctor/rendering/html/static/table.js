// The table of all tensors: a click on a title sorts, words filter; rows are made when they are wanted.
const table = byId("grid");
let findRow = () => null; // the row with an id, made where it is not there yet

if (table) {
  const FIRST = 100;
  const MORE = 400;
  const body = table.tBodies[0];
  const more = byId("more");
  const filter = byId("filter");
  const only = byId("only");
  const placed = byId("order");
  const found = byId("found");
  const values = data.values;
  const names = new Array(tensors);
  for (let at = 0; at < tensors; at++) names[at] = nameOf(at);
  const searched = names.map((name, at) => (
    `${name} ${data.dtypes[data.dtype[at]]} ${data.shapes[data.shape[at]]} ${data.kinds[data.kind[at]]}`.toLowerCase()));

  const spread = (at) => (values.max[at] == null || values.min[at] == null ? null : values.max[at] - values.min[at]);
  const columns = {
    name: { of: (at) => names[at], start: 1 },
    dtype: { of: (at) => data.dtypes[data.dtype[at]], start: 1 },
    shape: { of: (at) => data.elements[at], start: -1 },
    bytes: { of: (at) => data.bytes[at], start: -1 },
    bars: { of: spread, start: -1 },
    mean: { of: (at) => values.mean[at], start: -1 },
    std: { of: (at) => values.std[at], start: -1 },
    norm: { of: (at) => values.norm[at], start: -1 },
    change: { of: (at) => data.change[at], start: -1 },
  };

  const chosen = {
    mark: (at) => data.marks[at] > 0,
    odd: (at) => values.nan[at] > 0 || values.infinite[at] > 0,
    same: (at) => values.zeros[at] != null && values.min[at] === values.max[at] && data.elements[at] > 1,
    differs: (at) => data.change[at] > 0 || !/^(equal|same header|renamed, equal)$/.test(data.states[data.state[at]]),
  };

  let order = [];
  let shown = 0;
  let sorted = null;
  let direction = 1;

  function row(at) {
    const values_ = values && values.zeros[at] != null;
    const opener = make("button", { type: "button", class: "opener" }, ...broken(names[at]));
    opener.addEventListener("click", () => showTensor(at));
    const id = idOf(names[at]);
    const mark = ["", "info", "warning", "error"][data.marks[at]];
    const cells = [
      make("th", { scope: "row", class: "key" }, opener, permalink(id, names[at])),
      make("td", { text: data.dtypes[data.dtype[at]] }),
      make("td", { text: data.shapes[data.shape[at]] || "scalar" }),
      make("td", { class: "n", text: at in data.tied ? "tied" : bytes(data.bytes[at]) }),
    ];
    if (values) {
      cells.push(make("td", {}, values_ ? spark(values.bars[at], 80, 18) : ""));
      for (const each of ["mean", "std", "norm"]) {
        cells.push(make("td", { class: "n", "data-label": each, text: values_ ? figure(values[each][at]) : "" }));
      }
      const odd = values_ ? values.nan[at] + values.infinite[at] : 0;
      if (odd) cells[4].append(make("b", { class: "odd", text: `${count(odd)} NaN or inf` }));
    }
    if (data.state) cells.push(change(at));
    if (mark) opener.prepend(make("i", { class: `mark ${mark}`, "data-tip": `named by a finding: ${mark}` }));
    return make("tr", { id }, ...cells);
  }

  function change(at) {
    const far = data.change[at];
    const state = data.states[data.state[at]];
    const text = far ? `${figure(100 * far)} %` : state === "changed" ? "other" : state;
    return make("td", { class: "n", "data-label": "in B", text, "data-tip": far ? `${state}: difference as a share of the norm` : state });
  }

  function grow(by) {
    const rows = order.slice(shown, shown + by).map(row);
    body.append(...rows);
    shown += rows.length;
    const rest = order.length - shown;
    more.hidden = rest <= 0;
    more.textContent = `show ${count(Math.min(MORE, rest))} more of ${count(rest)}`;
  }

  function wanted() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = only.value.startsWith("kind:") ? data.kinds.indexOf(only.value.slice(5)) : -1;
    const test = chosen[only.value];
    const kept = [];
    for (let at = 0; at < tensors; at++) {
      if (kind >= 0 && data.kind[at] !== kind) continue;
      if (test && !test(at)) continue;
      if (words.every((word) => searched[at].includes(word))) kept.push(at);
    }
    return kept;
  }

  function show() {
    order = wanted();
    if (placed && placed.value) order.sort((one, other) => data.places[one] - data.places[other]);
    const rank = new Map(order.map((at, place) => [at, place]));
    const total = order.reduce((sum, at) => sum + data.bytes[at], 0);
    found.textContent = `${plural(order.length, "tensor")}, ${bytes(total)}`;
    if (sorted) {
      const of = columns[sorted].of;
      const keys = new Map(order.map((at) => [at, of(at)]));
      order.sort((one, other) => {
        const a = keys.get(one);
        const b = keys.get(other);
        if (a == null || b == null) return (a == null) - (b == null) || rank.get(one) - rank.get(other);
        const less = typeof a === "string" ? collator.compare(a, b) : a - b;
        return direction * less || rank.get(one) - rank.get(other);
      });
    }
    body.replaceChildren();
    shown = 0;
    grow(FIRST);
  }

  const collator = new Intl.Collator("en", { numeric: true });
  for (const title of table.tHead.rows[0].cells) {
    const key = title.dataset.sort;
    const button = make("button", { type: "button", class: "sort", text: title.textContent });
    button.addEventListener("click", () => {
      if (sorted !== key) { sorted = key; direction = columns[key].start; }
      else if (direction === columns[key].start) direction = -direction;
      else sorted = null; // the third click leads back to the order without one
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      if (sorted) title.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      show();
    });
    title.replaceChildren(button);
  }
  let waiting = 0;
  filter.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 90); });
  only.addEventListener("change", show);
  if (placed) placed.addEventListener("change", show);
  more.addEventListener("click", () => grow(MORE));
  findRow = (id) => {
    const at = names.findIndex((name) => idOf(name) === id);
    if (at < 0) return null;
    if (order.indexOf(at) < 0 || order.indexOf(at) >= shown) {
      filter.value = names[at];
      only.value = "";
      show();
    }
    if (order.indexOf(at) >= shown) return null;
    return body.rows[order.indexOf(at)];
  };
  show();
}
