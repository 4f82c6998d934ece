// Everything that is known of one tensor, in a dialog.
const dialog = byId("tensor");

function showTensor(tensor) {
  const name = nameOf(tensor);
  const facts = [
    ["dtype", data.dtypes[data.dtype[tensor]]],
    ["shape", data.shapes[data.shape[tensor]] || "scalar"],
    ["elements", count(data.elements[tensor])],
    ["bytes", tensor in data.tied ? `those of ${nameOf(data.tied[tensor])}` : count(data.bytes[tensor])],
    ["device tag", data.devices[data.device[tensor]]],
    ["belongs to", data.kinds[data.kind[tensor]]],
  ];
  const values = data.values;
  const measured = values && values.zeros[tensor] != null;
  if (measured) {
    for (const each of ["min", "max", "mean", "std", "norm"]) facts.push([each, figure(values[each][tensor]) || "beyond float64"]);
    facts.push(["zeros", count(values.zeros[tensor])]);
    if (values.nan[tensor]) facts.push(["NaN", count(values.nan[tensor])]);
    if (values.infinite[tensor]) facts.push(["infinite", count(values.infinite[tensor])]);
  } else if (values) facts.push(["values", "not examined"]);
  if (data.state) {
    const far = data.change[tensor];
    facts.push(["in B", data.states[data.state[tensor]] + (far ? `, by ${figure(100 * far)} % of the norm` : "")]);
  }
  const listed = make("dl", {}, ...facts.map(([label, value]) => (
    make("div", {}, make("dt", { text: label }), make("dd", { text: value })))));
  const close = make("button", { type: "button", class: "close", "aria-label": "Close", text: "×" });
  close.addEventListener("click", () => dialog.close());
  const link = permalink(idOf(name), name);
  link.addEventListener("click", () => dialog.close());
  const title = make("div", { class: "command" },
    make("code", { text: name, id: "tensor-name" }),
    make("button", { type: "button", class: "copy", "aria-label": "Copy the name", text: "copy" }), link);
  const bars = measured ? values.bars[tensor] : "";
  const picture = bars.length > 1 ? spark(bars, 320, 70) : null;
  const ends = picture && make("p", { class: "ends" },
    make("span", { text: figure(values.min[tensor]) }), make("span", { text: figure(values.max[tensor]) }));
  dialog.replaceChildren(close, title, ...[picture, ends].filter(Boolean), listed);
  if (!dialog.open) dialog.showModal();
}

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
