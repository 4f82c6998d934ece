// The treemap: a click opens a module, Escape and the names above lead back; arrows go from area to area.
const treemap = byId("treemap");

if (treemap) {
  const MOST = 400; // areas in one
  const LEAST = 700; // square pixels of one of many
  const REPEATED = 13; // layers alike that are drawn as one, as in treemap.py
  const LETTER = 7.3; // pixels of a sign
  const SHORTEST = 8; // signs of a label that is cut
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

  // a number for each level: the same for those with the same names in them, all the way down
  const kinds = data.parents.map(() => 0);
  const known = new Map();
  for (let at = kinds.length - 1; at >= 0; at--) {
    const inside = below[at].map((each) => `${data.levels[each]}:${kinds[each]}`).sort();
    const text = `${inside} ${own[at].map((tensor) => data.leaves[tensor]).sort()}`;
    if (!known.has(text)) known.set(text, known.size);
    kinds[at] = known.get(text);
  }

  // What an area is: { levels } for a module, or several alike as one; { tensors } for one, or one of each of several;
  // { rest } for what is too small. All with a name, bytes, and the number of tensors; path is the name with those of
  // the modules around it.
  function areas(node) {
    if (node.rest) return node.rest;
    if (node.tensors) return apart(node.tensors);
    const { inner, leaves } = split(node.levels);
    const found = inner.map(([name, levels]) => folded(name, levels, node.path));
    for (const [leaf, tensors] of leaves) {
      found.push(ofTensors(data.pieces[leaf], tensors, node.path + data.pieces[leaf]));
    }
    return found.sort((one, other) => other.bytes - one.bytes);
  }

  function put(map, key, value) {
    if (map.has(key)) map.get(key).push(value);
    else map.set(key, [value]);
  }

  // what has no bytes of its own (tied tensors) is not there
  function split(levels) {
    const inner = new Map();
    const leaves = new Map();
    for (const level of levels) {
      for (const each of below[level]) if (sizes[each]) put(inner, data.levels[each], each);
      for (const tensor of own[level]) if (data.bytes[tensor]) put(leaves, data.leaves[tensor], tensor);
    }
    return { inner: grouped(inner), leaves };
  }

  // many levels that are called by numbers and have the same tensors are one: {0…219}.
  function grouped(inner) {
    const alike = new Map();
    for (const [piece, levels] of inner) {
      const numbered = /^[0-9]+$/.test(bare(data.pieces[piece]));
      put(alike, numbered ? [...new Set(levels.map((each) => kinds[each]))].sort().join() : `of ${piece}`, piece);
    }
    return [...alike.values()].flatMap((pieces) => (pieces.length >= REPEATED
      ? [[range(pieces.map((piece) => data.pieces[piece])), pieces.flatMap((piece) => inner.get(piece))]]
      : pieces.map((piece) => [data.pieces[piece], inner.get(piece)])));
  }

  function range(pieces) {
    const sign = pieces[0].slice(bare(pieces[0]).length);
    const numbers = pieces.map((piece) => Number(bare(piece))).sort((one, other) => one - other);
    const last = numbers[numbers.length - 1];
    const first = last - numbers[0] === numbers.length - 1 ? numbers[0] : `${numbers[0]}, ${numbers[1]}`;
    return `{${first}…${last}}${sign}`;
  }

  const sum = (levels, of) => levels.reduce((total, each) => total + of[each], 0);
  const ofTensors = (name, tensors, path) => (
    { name, tensors, path, bytes: sum(tensors, data.bytes), count: tensors.length });

  // levels with nothing but one level in them are one with it
  function folded(name, levels, before) {
    for (;;) {
      const { inner, leaves } = split(levels);
      if (!inner.length && leaves.size === 1) {
        const [[leaf, tensors]] = leaves;
        return ofTensors(name + data.pieces[leaf], tensors, before + name + data.pieces[leaf]);
      }
      if (inner.length !== 1 || leaves.size) break;
      name += inner[0][0];
      [[, levels]] = inner;
    }
    return { levels, name: bare(name), path: before + name, bytes: sum(levels, sizes), count: sum(levels, counts) };
  }

  // the same tensor of many layers, each by what is its own in its name: 0, 1, 2
  function apart(tensors) {
    const names = tensors.map((tensor) => nameOf(tensor).split(/(?<=[./])/));
    const shortest = Math.min(...names.map((name) => name.length)) - 1;
    const same = (of) => names.every((name) => of(name) === of(names[0]));
    let first = 0;
    let last = 0;
    while (first < shortest && same((name) => name[first])) first++;
    while (first + last < shortest && same((name) => name[name.length - 1 - last])) last++;
    return tensors.map((tensor, at) => (
      ofTensors(bare(names[at].slice(first, names[at].length - last).join("")), [tensor], nameOf(tensor))))
      .sort((one, other) => other.bytes - one.bytes);
  }

  // as many as can be told apart in a box, and the rest as one
  function atMost(found, box) {
    const most = Math.min(MOST, Math.max(20, Math.floor((box.width * box.height) / LEAST)));
    if (found.length <= most) return found;
    const rest = found.slice(most);
    const total = rest.reduce((all, each) => all + each.bytes, 0);
    const many = rest.reduce((all, each) => all + each.count, 0);
    return [...found.slice(0, most), { rest, name: `${count(rest.length)} more`, bytes: total, count: many }];
  }

  function worst(largest, smallest, row, side) {
    if (!(row && smallest && side)) return Infinity;
    return Math.max((side * side * largest) / (row * row), (row * row) / (side * side * smallest));
  }

  // squarified: as in treemap.py
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

  const whole = folded("", [0], "");
  let path = [whole.levels ? { ...whole, name: "all" } : { rest: [whole], name: "all" }];

  function tensorsOf(node, found = []) {
    const stack = [node];
    while (stack.length) {
      const each = stack.pop();
      if (each.rest) stack.push(...each.rest);
      else if (each.tensors) for (const tensor of each.tensors) found.push(tensor);
      else {
        const levels = [...each.levels];
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
    const one = node.tensors && node.tensors.length === 1;
    const lines = [one ? nameOf(node.tensors[0]) : bare(node.path || node.name)];
    lines.push(`${bytes(node.bytes)}, ${share < 0.1 ? "less than 0.1" : share.toFixed(1)} % of all`);
    if (!one) lines.push(plural(node.count, "tensor"));
    const headers = new Set((node.tensors || []).slice(0, 1000).map((tensor) => (
      `${data.dtypes[data.dtype[tensor]]} ${data.shapes[data.shape[tensor]] || "scalar"}`)));
    if (headers.size === 1) lines.push(`${one ? "" : "each "}${[...headers][0]}`);
    return lines.join("\n");
  }

  // the name, and for a number the module that it is one of: layers.0
  function label(node) {
    const path = bare(node.path || "");
    if (!/^[0-9{]/.test(node.name) || !path.endsWith(node.name)) return node.name;
    return path.slice(0, -node.name.length).split(/(?<=[./])/).pop() + node.name;
  }

  // the hue of an area: by its place, by the dtype of most of its bytes, or by how far it changed
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
    const room = (box.width - 16) / LETTER;
    const full = label(node);
    if (box.height >= 21 && room >= Math.min(node.name.length, SHORTEST)) {
      cell.append(make("span", { text: full.length <= room ? full : node.name }));
    }
    cell.dataset.tip = told(node);
    cell.setAttribute("aria-label", told(node).replaceAll("\n", ", "));
    if (depth) { cell.tabIndex = -1; cell.setAttribute("aria-hidden", "true"); }
    paint(cell, node, hue);
    cell.addEventListener("click", () => enter(node));
    return cell;
  }

  // areas within areas, as deep as there is room; the parts of one that fills the picture get colours of their own
  function fill(node, box, hue, depth, cells) {
    const inside = atMost(areas(node), box);
    const total = box.width * box.height;
    squarified(inside.map((each) => each.bytes), box).forEach((place, at) => {
      if (place.width < 2.5 || place.height < 2.5 || cells.length > ROOM) return;
      const own_ = hue === null ? at : hue;
      const part = inside[at];
      const cell = area(part, place, own_, depth);
      cells.push(cell);
      const room = { x: place.x + 4, y: place.y + 22, width: place.width - 9.5, height: place.height - 27.5 };
      if (!part.levels || depth === DEEP || room.width < 34 || room.height < 24) {
        if (place.width > 76 && place.height > 44) cell.append(make("small", { text: bytes(part.bytes) }));
        return;
      }
      const filling = hue === null && place.width * place.height > 0.6 * total;
      fill(part, room, filling ? null : own_, depth + 1, cells);
    });
  }

  function enter(node) {
    hideTip();
    if (node.tensors && node.tensors.length === 1) { showTensor(node.tensors[0]); return; }
    path.push(node);
    show(true);
  }

  function up() {
    if (path.length > 1) { path.pop(); show(true); }
  }

  function show(focus) {
    const width = treemap.clientWidth;
    if (!width) return; // in a section that is folded
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
