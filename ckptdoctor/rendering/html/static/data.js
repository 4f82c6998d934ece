// The data of the page, and small helpers.
const data = JSON.parse(document.getElementById("data").textContent);
const tensors = data.homes.length;
const LEVELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

function draw(tag, options = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

const levelNames = new Array(data.parents.length).fill("");
for (let at = 1; at < data.parents.length; at++) {
  levelNames[at] = levelNames[data.parents[at]] + data.pieces[data.levels[at]];
}
const nameOf = (tensor) => levelNames[data.homes[tensor]] + data.pieces[data.leaves[tensor]];

const scaled = (number, units, below) => {
  let at = 0;
  while (at < units.length - 1 && number >= 999.5) { number /= 1000; at++; }
  const text = at && number < below - 0.05 ? number.toFixed(1) : Math.round(number).toLocaleString("en-US");
  return text + units[at];
};
const bytes = (number) => scaled(number, [" bytes", " kB", " MB", " GB", " TB", " PB"], 10);
const amount = (number) => scaled(number, ["", " k", " M", " B", " T"], 100);
const count = (number) => number.toLocaleString("en-US");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const figure = (number) => {
  if (number == null) return "";
  if (number === 0) return "0";
  const size = Math.abs(number);
  return size >= 1e5 || size < 1e-3 ? number.toExponential(2).replace("e+", "e") : String(Number(number.toPrecision(3)));
};
const bare = (name) => name.replace(/[./]+$/, "");

// a long name may be broken where its parts end
function broken(name) {
  const parts = name.split(/(?<=[./_,])(?!\.)/);
  return parts.flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
}

function spark(heights, width, height) {
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true" });
  if (heights.length < 2) return picture;
  const wide = width / heights.length;
  let path = "";
  for (let at = 0; at < heights.length; at++) {
    const tall = (height * LEVELS.indexOf(heights[at])) / (LEVELS.length - 1);
    if (tall) path += `M${(at * wide).toFixed(1)} ${height}v${(-tall).toFixed(1)}h${(wide - 0.8).toFixed(1)}V${height}z`;
  }
  picture.append(draw("path", { d: path, class: "bin" }));
  return picture;
}
