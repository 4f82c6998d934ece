// At last, when all of the page is made: the place that its address names.
visit();

// In drawings with several lines the one whose name the pointer is on stands out.
for (const figure_ of document.querySelectorAll("figure.lines")) {
  const mark = (line) => {
    for (const each of figure_.querySelectorAll("g.line")) {
      each.classList.toggle("faint", line !== null && each.dataset.line !== line);
    }
  };
  for (const name of figure_.querySelectorAll(".legend [data-line]")) {
    name.addEventListener("pointerenter", () => mark(name.dataset.line));
    name.addEventListener("pointerleave", () => mark(null));
  }
}
