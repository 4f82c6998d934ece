// A word above a table shows only the rows that have it.
const table = null; // of tensors: there is none on this page

for (const input of document.querySelectorAll("input[data-filters]")) {
  const rows = [...byId(input.dataset.filters).querySelectorAll("tbody tr")];
  const output = input.closest(".bar").querySelector("output");
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    output.textContent = wanted ? `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}` : "";
  });
}

visit();
