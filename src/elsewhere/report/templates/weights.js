(() => {
  "use strict";
  const weight = (step, steps) => (step / steps).toFixed(2);
  for (const box of document.querySelectorAll(".weights")) {
    const data = JSON.parse(box.querySelector("script").textContent);
    const input = box.querySelector("input");
    const shown = box.querySelector("output");
    const said = box.querySelector(".weights-said");
    const body = box.querySelector("tbody");
    const rows = [...body.rows];
    const most = Math.max(data.models.length - 1, 1);
    const show = () => {
      const at = Number(input.value);
      const order = data.models.map((model, i) => i).sort((a, b) =>
        data.models[a].ranks[at] - data.models[b].ranks[at] || (data.models[a].name < data.models[b].name ? -1 : 1));
      let changed = 0;
      data.models.forEach((model, i) => {
        const row = rows[i];
        const rank = model.ranks[at];
        const step = model.ranks[data.reference] - rank;
        const lo = model.lo[at];
        const hi = model.hi[at];
        changed += step !== 0;
        row.querySelector(".w-rank").textContent = rank;
        row.querySelector(".w-change").textContent = step > 0 ? `▲ ${step}` : step < 0 ? `▼ ${-step}` : "·";
        row.querySelector(".w-score").textContent = model.scores[at].toFixed(3);
        row.querySelector(".w-spread").textContent = lo === hi ? `${lo}` : `${lo}–${hi}`;
        const bar = row.querySelector(".track i");
        bar.style.left = `${(100 * (lo - 1)) / most}%`;
        bar.style.width = `${(100 * (hi - lo)) / most}%`;
        row.querySelector(".track b").style.left = `${(100 * (rank - 1)) / most}%`;
      });
      body.append(...order.map(i => rows[i]));
      const value = weight(at, data.steps);
      const first = data.models.filter(model => model.ranks[at] === 1).map(model => model.name).join(", ");
      shown.textContent = value;
      input.setAttribute("aria-valuetext", value);
      said.textContent = at === data.reference
        ? `At ${value}, the protocol's weight. First: ${first}.`
        : `At ${value}, ${changed} of ${data.models.length} change rank against ${weight(data.reference, data.steps)}. First: ${first}.`;
    };
    input.addEventListener("input", show);
    input.disabled = false;
    show();
  }
})();
