"use strict";
// Filters of the claims and of the gallery: what is listed is hidden or shown, nothing is made.
(() => {
  function filtered(formId, items, one, key, attribute) {
    const form = document.getElementById(formId);
    if (!form) return;
    const words = new Map(items.map((item) => [item, item.textContent.toLowerCase()]));
    const apply = () => {
      const paper = form.elements.paper.value;
      const state = form.elements[key].value;
      const text = form.elements.text.value.trim().toLowerCase();
      let shown = 0;
      for (const item of items) {
        const fits = (!paper || item.dataset.paper === paper) && (!state || item.dataset[attribute] === state) && (!text || words.get(item).includes(text));
        item.hidden = !fits;
        shown += fits ? 1 : 0;
      }
      // A paper's heading goes with its last card.
      for (const group of form.parentElement.querySelectorAll(".paper")) group.hidden = !items.some((item) => !item.hidden && group.contains(item));
      // What is folded away opens for a search that finds something in it.
      for (const fold of form.parentElement.querySelectorAll(":scope > details")) fold.open = Boolean(state || text) && items.some((item) => !item.hidden && fold.contains(item));
      form.querySelector("output").textContent = `${shown} of ${items.length} ${one}`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }
  filtered("claim-filters", [...document.querySelectorAll("#claims .claims tbody tr")], "claims", "verdict", "verdict");
  filtered("gallery-filters", [...document.querySelectorAll("#gallery .card")], "figures and tables", "state", "state");
})();
