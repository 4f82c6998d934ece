// Buttons that copy the command beside them; where there is no clipboard, they select it.
async function copied(code, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = document.execCommand("copy") ? "copied" : "selected";
  }
  setTimeout(() => { button.textContent = before; }, 1600);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copied(button.parentNode.querySelector("code"), button);
});
