// The treemap: a click opens a module, Escape and the names above lead back; arrows go from area to area.
const treemap = byId("treemap");

if (treemap) {
  const MOST = 60; // areas in one
  const ROOM = 900; // areas in all
  const DEEP = 3; // levels below the first
  const COLOURS = 8;
  const crumbs = byId("crumbs");
  const colours = byId("colours");
  const key = byId("treemap-key");
  const below = data.parents.map(() => []);
  const own = data.parents.map(() => []);
  const sizes = data.parents.map(() => 0);
  const counts = data.parents.map(() => 0);
  data.parents.forEach((parent, at) => { if (parent >= 0) below[parent].push(at); });
  data.homes.forEach((home, at) => {
    own[home].push(at);
    sizes[home] += data.bytes[at];
    counts[home]++;
  });
  for (let at = sizes.length - 1; at > 0; at--) {
    sizes[data.parents[at]] += sizes[at];
    counts[data.parents[at]] += counts[at];
  }

  // what an area stands for: { level } or { tensor } or { rest: [...] }, with its name and bytes
  function areas(node) {
    if (node.rest) return node.rest;
    let level = node.level;
    const found = below[level].filter((each) => sizes[each]).map((each) => folded(each));
    for (const tensor of own[level]) {
      found.push({ tensor, name: data.pieces[data.leaves[tensor]], bytes: data.bytes[tensor], count: 1 });
    }
    return found.filter((each) => each.bytes).sort((one, other) => other.bytes - one.bytes);
  }

  // levels with nothing but one level are one; what has no bytes of its own (tied tensors) is not there
  function folded(level) {
    let name = level ? data.pieces[data.levels[level]] : "";
    for (;;) {
      const inner = below[level].filter((each) => sizes[each]);
      const leaves = own[level].filter((each) => data.bytes[each]);
      if (!inner.length && leaves.length === 1) {
        return { tensor: leaves[0], name: name + data.pieces[data.leaves[leaves[0]]], bytes: sizes[level], count: 1 };
      }
      if (inner.length !== 1 || leaves.length) break;
      [level] = inner;
      name += data.pieces[data.levels[level]];
    }
    return { level, name: bare(name), bytes: sizes[level], count: counts[level] };
  }

  function atMost(found) {
    if (found.length <= MOST) return found;
    const rest = found.slice(MOST);
    const total = rest.reduce((sum, each) => sum + each.bytes, 0);
    const many = rest.reduce((sum, each) => sum + each.count, 0);
    return [...found.slice(0, MOST), { rest, name: `${count(rest.length)} more`, bytes: total, count: many }];
  }

  function worst(largest, smallest, row, side) {
    if (!(row && smallest && side)) return Infinity;
    return Math.max((side * side * largest) / (row * row), (row * row) / (side * side * smallest));
  }

  // squarified: as in squares.py
  function squarified(sizes, box) {
    const made = [];
    const total = sizes.reduce((sum, each) => sum + each, 0);
    if (!(total > 0)) return made;
    const scale = (box.width * box.height) / total;
    const parts = sizes.map((each) => each * scale);
    let { x, y, width, height } = box;
    for (let start = 0; start < parts.length;) {
      const side = Math.min(width, height);
      let end = start + 1;
      let row = parts[start];
      while (end < parts.length
        && worst(parts[start], parts[end], row + parts[end], side) <= worst(parts[start], parts[end - 1], row, side)) {
        row += parts[end++];
      }
      const thick = side ? row / side : 0;
      let at = 0;
      for (const part of parts.slice(start, end)) {
        const long = thick ? part / thick : 0;
        made.push(width >= height
          ? { x, y: y + at, width: thick, height: long } : { x: x + at, y, width: long, height: thick });
        at += long;
      }
      if (width >= height) { x += thick; width = Math.max(0, width - thick); }
      else { y += thick; height = Math.max(0, height - thick); }
      start = end;
    }
    return made;
  }

  const whole = folded(0);
  let path = [whole.tensor === undefined ? { ...whole, name: "all" } : { rest: [whole], name: "all" }];

  function tensorsOf(node, found = []) {
    const stack = [node];
    while (stack.length) {
      const each = stack.pop();
      if (each.tensor !== undefined) found.push(each.tensor);
      else if (each.rest) stack.push(...each.rest);
      else {
        const levels = [each.level];
        while (levels.length) {
          const level = levels.pop();
          for (const tensor of own[level]) found.push(tensor);
          for (const inner of below[level]) levels.push(inner);
        }
      }
    }
    return found;
  }

  function told(node) {
    const share = (100 * node.bytes) / (sizes[0] || 1);
    const lines = [node.tensor !== undefined ? nameOf(node.tensor) : node.name];
    lines.push(`${bytes(node.bytes)}, ${share < 0.1 ? "less than 0.1" : share.toFixed(1)} % of all`);
    if (node.tensor !== undefined) {
      lines.push(`${data.dtypes[data.dtype[node.tensor]]} ${data.shapes[data.shape[node.tensor]] || "scalar"}`);
    } else lines.push(plural(node.count, "tensor"));
    return lines.join("\n");
  }

  // the hue of an area: by its place, by the element type of most of its bytes, or by how far it changed
  function paint(cell, node, place) {
    if (colours.value === "module") { cell.classList.add(`h${place % COLOURS}`); return; }
    const within = tensorsOf(node);
    if (colours.value === "dtype") {
      const most = new Map();
      for (const tensor of within) {
        const dtype = data.dtype[tensor];
        most.set(dtype, (most.get(dtype) || 0) + data.bytes[tensor]);
      }
      const [dtype] = [...most].sort((one, other) => other[1] - one[1])[0];
      cell.classList.add(`h${dtype % COLOURS}`);
      return;
    }
    let total = 0;
    let levels = 0;
    for (const tensor of within) {
      const far = data.change[tensor];
      total += data.bytes[tensor];
      if (far) levels += data.bytes[tensor] * Math.min(5, Math.max(1, Math.ceil(Math.log10(far) + 5)));
    }
    cell.classList.add(`c${Math.ceil(total ? levels / total : 0)}`);
  }

  function legend() {
    const items = [];
    const item = (kind, text) => items.push(make("span", {}, make("i", { class: kind }), text));
    if (colours.value === "dtype") data.dtypes.slice(0, 12).forEach((name, at) => item(`h${at % COLOURS}`, name));
    if (colours.value === "change") {
      item("c0", "no change");
      ["≤ 0.01 %", "0.1 %", "1 %", "10 %", "more (of the norm)"].forEach((text, at) => item(`c${at + 1}`, text));
    }
    key.replaceChildren(...items);
  }

  function area(node, box, hue, depth) {
    const kind = ["cell", depth ? `inner d${depth}` : "", box.width < 26 || box.height < 21 ? "tiny" : ""];
    const cell = make("button", { type: "button", class: kind.join(" ").trim() });
    cell.style.left = `${box.x}px`;
    cell.style.top = `${box.y}px`;
    cell.style.width = `${Math.max(1, box.width - 1.5)}px`;
    cell.style.height = `${Math.max(1, box.height - 1.5)}px`;
    if (box.width >= 26 && box.height >= 21) cell.append(make("span", { text: node.name }));
    cell.dataset.tip = told(node);
    cell.setAttribute("aria-label", told(node).replaceAll("\n", ", "));
    if (depth) { cell.tabIndex = -1; cell.setAttribute("aria-hidden", "true"); }
    paint(cell, node, hue);
    cell.addEventListener("click", () => enter(node));
    return cell;
  }

  // areas within areas, as deep as there is room; the parts of one that fills the picture get colours of their own
  function fill(node, box, hue, depth, cells) {
    const inside = atMost(areas(node));
    const total = box.width * box.height;
    squarified(inside.map((each) => each.bytes), box).forEach((place, at) => {
      if (place.width < 2.5 || place.height < 2.5 || cells.length > ROOM) return;
      const own_ = hue === null ? at : hue;
      const part = inside[at];
      const cell = area(part, place, own_, depth);
      cells.push(cell);
      const room = { x: place.x + 4, y: place.y + 22, width: place.width - 9.5, height: place.height - 27.5 };
      if (part.tensor !== undefined || depth === DEEP || room.width < 34 || room.height < 24) {
        if (place.width > 64 && place.height > 44) cell.append(make("small", { text: bytes(part.bytes) }));
        return;
      }
      const filling = hue === null && place.width * place.height > 0.6 * total;
      fill(part, room, filling ? null : own_, depth + 1, cells);
    });
  }

  function enter(node) {
    hideTip();
    if (node.tensor !== undefined) { showTensor(node.tensor); return; }
    path.push(node);
    show(true);
  }

  function up() {
    if (path.length > 1) { path.pop(); show(true); }
  }

  function show(focus) {
    const width = treemap.clientWidth;
    const height = Math.round(Math.min(520, Math.max(340, width * 0.42)));
    treemap.style.height = `${height}px`;
    const cells = [];
    fill(path[path.length - 1], { x: 0, y: 0, width, height }, null, 0, cells);
    treemap.replaceChildren(...cells);
    legend();
    crumbs.replaceChildren(...path.map((node, at) => {
      const last = at === path.length - 1;
      const crumb = make("button", { type: "button", text: node.name, disabled: last });
      crumb.addEventListener("click", () => { path = path.slice(0, at + 1); show(true); });
      if (last) crumb.setAttribute("aria-current", "location");
      return crumb;
    }));
    if (focus && cells.length) cells[0].focus({ preventScroll: true });
  }

  treemap.addEventListener("keydown", (event) => {
    const cells = [...treemap.querySelectorAll(".cell:not(.inner)")];
    const at = cells.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && at >= 0) {
      event.preventDefault();
      cells[(at + step + cells.length) % cells.length].focus();
    } else if (event.key === "Escape" || event.key === "Backspace") {
      event.preventDefault();
      up();
    }
  });
  colours.addEventListener("change", () => show(false));
  let waiting = 0;
  let last = treemap.clientWidth;
  new ResizeObserver(() => {
    if (treemap.clientWidth === last) return;
    last = treemap.clientWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => show(false));
  }).observe(treemap);
  show(false);
}
