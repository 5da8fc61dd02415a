// Values of a chart under the pointer, a finger, or the arrow keys. The page is whole without it.
for (const chart of document.querySelectorAll("[data-values]")) {
  const values = JSON.parse(chart.dataset.values), frame = chart.querySelector(".frame");
  const area = frame.querySelector(".area"), tip = document.createElement("output");
  if (!values.x.length) continue;
  const rule = area.appendChild(document.createElementNS(area.namespaceURI, "line"));
  let at = -1;
  tip.className = "tip";
  tip.hidden = true;
  chart.append(tip);
  frame.tabIndex = 0;
  frame.setAttribute("aria-description", "Arrow keys read its values.");
  const hide = () => { tip.hidden = true; rule.setAttribute("stroke", "none"); at = -1; };
  const show = (index) => {
    at = Math.max(0, Math.min(values.x.length - 1, index));
    const place = values.x[at] + "%", box = area.getBoundingClientRect();
    const whole = chart.getBoundingClientRect(), from = box.left - whole.left;
    const left = from + box.width * values.x[at] / 100, half = left > whole.width / 2;
    for (const [name, value] of Object.entries({ x1: place, x2: place, y1: values.y[0], y2: values.y[1], stroke: "var(--ink)" }))
      rule.setAttribute(name, value);
    const title = document.createElement("strong");
    title.textContent = values.t[at];
    tip.replaceChildren(title);
    for (const [label, colour, texts] of values.s) {
      if (texts[at] === null) continue;
      const row = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = "var(--" + colour + ")";
      row.append(dot, label + " ");
      row.append(Object.assign(document.createElement("b"), { textContent: texts[at] }));
      tip.append(row);
    }
    tip.style.top = box.top - whole.top + "px";
    tip.style.left = half ? "auto" : left + 8 + "px";
    tip.style.right = half ? whole.width - left + 8 + "px" : "auto";
    tip.style.maxWidth = (half ? left : whole.width - left) - 8 + "px";
    tip.hidden = false;
  };
  const point = (event) => {
    const box = area.getBoundingClientRect(), x = 100 * (event.clientX - box.left) / box.width;
    let best = 0;
    values.x.forEach((place, i) => { if (Math.abs(place - x) < Math.abs(values.x[best] - x)) best = i; });
    show(best);
  };
  frame.addEventListener("pointermove", point);
  frame.addEventListener("pointerdown", point);
  frame.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  frame.addEventListener("blur", hide);
  frame.addEventListener("keydown", (event) => {
    const last = values.x.length - 1;
    const to = { ArrowLeft: at < 0 ? last : at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}
