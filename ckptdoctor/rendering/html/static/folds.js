// Sections fold. On a phone all but the first are folded at first; a link into one opens it, and so does printing.
const folds = [...document.querySelectorAll("section > .fold")];
const FIRST_OPEN = new Set(["findings", "damage", "comparison", "health", "broken"]);

if (matchMedia("(max-width: 720px)").matches) {
  for (const fold of folds) fold.open = FIRST_OPEN.has(fold.parentNode.id);
}

const idOf = (name) => `tensor:${encodeURIComponent(name).replaceAll("'", "%27")}`;

function permalink(id, name) {
  return make("a", { class: "permalink", href: `#${id}`, "aria-label": `Link to ${name}` });
}

// to the element that the address names; a row of the table may have to be made first
function visit() {
  const id = location.hash.slice(1);
  if (!id) return;
  const row = id.startsWith("tensor:") && table ? findRow(id) : null;
  const target = row || byId(id);
  if (!target) return;
  const fold = target.matches("section") ? target.querySelector(".fold") : target.closest(".fold");
  if (fold) fold.open = true;
  for (const each of document.querySelectorAll(".visited")) each.classList.remove("visited");
  if (!target.matches("section")) target.classList.add("visited");
  target.scrollIntoView({ block: target.matches("section") ? "start" : "center", behavior: "instant" });
}

addEventListener("hashchange", visit);
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) visit(); // the address stays the same, and nothing else would happen
});
addEventListener("beforeprint", () => { for (const fold of folds) fold.open = true; });
