(() => {
  "use strict";
  for (const viewer of document.querySelectorAll(".strips")) {
    const shown = () => new Set([...viewer.querySelectorAll(".strips-legend input:checked")].map(box => box.value));
    const refreshes = [];
    for (const card of viewer.querySelectorAll(".strip-card")) {
      const held = card.querySelector("script");
      if (!held) continue;
      const data = JSON.parse(held.textContent);
      const last = data.first + data.slices.length - 1;
      const view = card.querySelector(".strip-view");
      const image = view.querySelector("img");
      const boxes = [...view.querySelectorAll(".sbox")];
      const range = card.querySelector("input[type=range]");
      const output = card.querySelector("output");
      const [back, on] = card.querySelectorAll("button");
      const title = image.dataset.title;
      let at = Number(image.dataset.slice);
      const slices = data.slices.map(slice => `data:image/jpeg;base64,${slice}`);
      slices[at - data.first] = image.src;
      const refresh = layers => {
        for (const box of boxes) {
          const there = Number(box.dataset.first) <= at && at <= Number(box.dataset.last);
          box.classList.toggle("away", !there || !layers.has(box.dataset.layer) || ("low" in box.dataset && !layers.has("low")));
          if (box.dataset.centre) box.classList.toggle("dashed", Number(box.dataset.centre) !== at);
        }
      };
      const show = wanted => {
        at = Math.min(Math.max(wanted, data.first), last);
        image.src = slices[at - data.first];
        image.alt = `${title}, slice ${at}`;
        range.value = at;
        range.setAttribute("aria-valuetext", `slice ${at}`);
        output.textContent = `slice ${at}`;
        back.disabled = at === data.first;
        on.disabled = at === last;
        refresh(shown());
      };
      const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
      view.addEventListener("keydown", event => {
        if (event.altKey || event.ctrlKey || event.metaKey) return;
        if (event.key in steps) show(at + steps[event.key]);
        else if (event.key === "Home") show(data.first);
        else if (event.key === "End") show(last);
        else return;
        event.preventDefault();
      });
      view.addEventListener("pointerdown", () => view.focus({ preventScroll: true }));
      range.addEventListener("input", () => show(Number(range.value)));
      back.addEventListener("click", () => { show(at - 1); if (back.disabled) on.focus(); });
      on.addEventListener("click", () => { show(at + 1); if (on.disabled) back.focus(); });
      range.disabled = data.slices.length < 2;
      show(at);
      refreshes.push(refresh);
    }
    for (const box of viewer.querySelectorAll(".strips-legend input")) {
      box.disabled = false;
      box.addEventListener("change", () => refreshes.forEach(refresh => refresh(shown())));
    }
  }
})();
