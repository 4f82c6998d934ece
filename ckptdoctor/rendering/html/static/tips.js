// One tooltip for everything that carries data-tip, under the pointer and for whoever comes by keyboard.
const tip = byId("tip");

for (const title of document.querySelectorAll("main svg title")) {
  title.parentNode.dataset.tip = title.textContent;
  if (title.parentNode.tagName === "rect" || title.parentNode.tagName === "circle") {
    title.parentNode.setAttribute("aria-label", title.textContent);
  }
  title.remove();
}

function placeTip(x, y) {
  const room = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, x + 14), document.documentElement.clientWidth - room.width - 8);
  const top = y + 18 + room.height > window.innerHeight ? y - room.height - 12 : y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function showTip(target, x, y) {
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  placeTip(x, y);
}

let focused = null; // what the tip belongs to when it came by keyboard: it goes along when the page scrolls

function showBeside(target) {
  const room = target.getBoundingClientRect();
  showTip(target, room.left, room.top + Math.min(room.height, 40));
}

function hideTip() {
  focused = null;
  tip.hidden = true;
}

document.addEventListener("pointermove", (event) => {
  const target = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
  if (target && event.pointerType !== "touch") showTip(target, event.clientX, event.clientY);
  else hideTip();
});
document.addEventListener("pointerleave", hideTip);
document.addEventListener("focusin", (event) => {
  const target = event.target.closest("[data-tip]");
  if (!target || !target.matches(":focus-visible")) { hideTip(); return; }
  focused = target;
  showBeside(target);
});
document.addEventListener("scroll", () => {
  if (focused && focused === document.activeElement) showBeside(focused);
  else hideTip();
}, { passive: true });
