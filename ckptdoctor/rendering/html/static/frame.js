// What every page has: elements by their ids, and new ones. Text only ever becomes text: nothing here makes markup of it.
const byId = (id) => document.getElementById(id);
document.documentElement.classList.add("script");

function make(tag, options = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key === "text") made.textContent = value;
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...inside.filter((each) => each != null));
  return made;
}
