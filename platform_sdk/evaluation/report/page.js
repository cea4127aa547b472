"use strict";
// The trajectory viewer. Text from rollouts goes into the page only as text nodes, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), detail = byId("detail");
  const PAGE = 150;
  let shown = [];      // the rollouts that pass the filters
  let drawn = 0;       // how many of them stand in the list
  let chosen = null;

  const { make, number } = hypergraph;
  const badge = (text, kind) => make("span", "badge " + (kind || ""), text);
  const sign = (rollout) => {
    const node = make("span", "sign " + (rollout.right ? "right" : "wrong"), rollout.right ? "✓" : "✗");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", rollout.right ? "right" : "wrong");
    return node;
  };

  for (const rollout of data.rollouts) {
    rollout.questionId = rollout.id.slice(0, rollout.id.lastIndexOf("#"));
    rollout.words = [rollout.id, rollout.question, rollout.main.answer || "", ...rollout.answers].join("\n").toLowerCase();
  }
  const sameQuestion = new Map();
  for (const rollout of data.rollouts) {
    if (!sameQuestion.has(rollout.questionId)) sameQuestion.set(rollout.questionId, []);
    sameQuestion.get(rollout.questionId).push(rollout);
  }

  const others = (one) => sameQuestion.get(one.questionId);
  const open = (rollout) => {
    if (!shown.includes(rollout)) {
      filters.clear();
      chosen = rollout;
      filter();
    }
    pick(rollout);
    detail.focus({ preventScroll: true });
  };
  const linkOf = (rollout) => `#t=${encodeURIComponent(data.phases[rollout.phase].name)}/${encodeURIComponent(rollout.id)}`;
  const view = trajectoryView({ data, make, number, badge, sign, sameQuestion: others, open, linkOf });

  // --- list ---------------------------------------------------------------------------------------------
  const filter = () => {
    const wanted = filters.phase();
    shown = data.rollouts.filter(filters.passes);
    const phases = wanted === "" ? data.phases : [data.phases[Number(wanted)]];
    const embedded = phases.reduce((sum, one) => sum + one.shown, 0);
    const total = phases.reduce((sum, one) => sum + one.total, 0);
    byId("count").textContent = `${shown.length} of ${embedded} trajectories match.` + (embedded < total
      ? ` This page holds ${embedded} of the run's ${total} rollouts ${wanted === "" ? "" : "in this phase "}(drawn by question, ` +
        "the same questions in every phase); the others are in the run directory." : "");
    list.replaceChildren();
    list.scrollTop = 0;
    drawn = 0;
    draw();
    choose(shown.includes(chosen) ? chosen : shown[0] || null);
  };

  const draw = () => {
    const end = Math.min(drawn + PAGE, shown.length);
    for (; drawn < end; drawn++) list.append(option(shown[drawn], drawn));
    if (!shown.length) list.append(make("p", "note option", "", "Nothing matches these filters."));
  };

  const option = (rollout, place) => {
    const meta = make("span", "meta");
    if (filters.phase() === "") meta.append(make("span", "", data.phases[rollout.phase].name));
    if (rollout.attempt) meta.append(make("span", "", `attempt ${rollout.attempt + 1}`));
    if ("f1" in rollout.rewards) meta.append(make("span", "", `F1 ${number(rollout.rewards.f1)}`));
    if (rollout.malformed) meta.append(badge(`${rollout.malformed} malformed`, "warn"));
    if (rollout.accepted) meta.append(badge("accepted", "accent"));
    if (rollout.trace) meta.append(view.grounds(rollout));
    const node = make("div", "option", sign(rollout), make("span", "q", rollout.question), meta);
    node.id = `option-${place}`;
    node.setAttribute("role", "option");
    node.setAttribute("aria-selected", "false");
    node.addEventListener("click", () => pick(rollout));
    return node;
  };

  const choose = (rollout) => {
    chosen = rollout;
    for (const node of list.querySelectorAll('[aria-selected="true"]')) node.setAttribute("aria-selected", "false");
    const place = shown.indexOf(rollout);
    while (place >= drawn && drawn < shown.length) draw();
    const node = byId(`option-${place}`);
    if (node) {
      node.setAttribute("aria-selected", "true");
      list.setAttribute("aria-activedescendant", node.id);
      const top = node.offsetTop - list.offsetTop, bottom = top + node.offsetHeight;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
    } else {
      list.removeAttribute("aria-activedescendant");
    }
    detail.replaceChildren(...(rollout ? view.describe(rollout) : [make("p", "note", "Nothing to show.")]));
  };

  // What a reader chooses is in the address, so that it can be passed on.
  const pick = (rollout) => {
    choose(rollout);
    history.replaceState(null, "", linkOf(rollout));
  };
  const followLink = () => {
    const found = location.hash.startsWith("#t=") && data.rollouts.find((rollout) => linkOf(rollout) === location.hash);
    if (!found) return;
    open(found);
    byId("trajectories").scrollIntoView();
  };

  // --- wiring -------------------------------------------------------------------------------------------
  const filters = filtersOf(data, others, filter);
  list.addEventListener("scroll", () => {
    if (drawn < shown.length && list.scrollTop + list.clientHeight > list.scrollHeight - 400) draw();
  });
  list.addEventListener("keydown", (event) => {
    const place = shown.indexOf(chosen);
    const target = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (event.key === "Enter") detail.focus();
    else if (target !== undefined && shown[target]) pick(shown[target]);
    else return;
    event.preventDefault();
  });
  document.querySelector(".viewer").hidden = false;
  filter();
  followLink();
  addEventListener("hashchange", followLink);
})();
