"use strict";
// The trajectory viewer. Text from rollouts goes into the page only as text nodes, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), detail = byId("detail"), phase = byId("phase"), search = byId("search");
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

  const open = (rollout) => {
    if (!shown.includes(rollout)) {
      phase.value = "";
      search.value = "";
      document.querySelector('input[name="outcome"][value="all"]').checked = true;
      chosen = rollout;
      filter();
    } else choose(rollout);
    detail.focus({ preventScroll: true });
  };
  const view = trajectoryView({ data, make, number, badge, sign, sameQuestion: (one) => sameQuestion.get(one.questionId), open });

  // --- filters and list ---------------------------------------------------------------------------------
  const outcome = () => document.querySelector('input[name="outcome"]:checked').value;
  const passes = {
    all: () => true,
    right: (rollout) => rollout.right,
    wrong: (rollout) => !rollout.right,
    malformed: (rollout) => rollout.malformed > 0,
    accepted: (rollout) => rollout.accepted,
    ungrounded: (rollout) => rollout.trace !== null && ["partial", "other", "none"].includes(rollout.trace.grounds),
  };

  const filter = () => {
    const wanted = phase.value, kind = passes[outcome()], words = search.value.trim().toLowerCase();
    shown = data.rollouts.filter((rollout) =>
      (wanted === "" || rollout.phase === Number(wanted)) && kind(rollout) && (!words || rollout.words.includes(words)));
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
    if (phase.value === "") meta.append(make("span", "", data.phases[rollout.phase].name));
    if (rollout.attempt) meta.append(make("span", "", `attempt ${rollout.attempt + 1}`));
    if ("f1" in rollout.rewards) meta.append(make("span", "", `F1 ${number(rollout.rewards.f1)}`));
    if (rollout.malformed) meta.append(badge(`${rollout.malformed} malformed`, "warn"));
    if (rollout.accepted) meta.append(badge("accepted", "accent"));
    if (rollout.trace) meta.append(view.grounds(rollout));
    const node = make("div", "option", sign(rollout), make("span", "q", rollout.question), meta);
    node.id = `option-${place}`;
    node.setAttribute("role", "option");
    node.setAttribute("aria-selected", "false");
    node.addEventListener("click", () => choose(rollout));
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

  // --- wiring -------------------------------------------------------------------------------------------
  phase.append(new Option(`all phases (${data.rollouts.length})`, ""));
  data.phases.forEach((one, place) => { if (one.shown) phase.append(new Option(`${one.name} (${one.shown})`, String(place))); });
  if (!data.rollouts.some((rollout) => rollout.accepted)) document.querySelector('input[value="accepted"]').parentNode.remove();
  if (!data.rollouts.some((rollout) => rollout.trace)) document.querySelector('input[value="ungrounded"]').parentNode.remove();
  const last = data.phases.map((one) => one.shown > 0).lastIndexOf(true);
  phase.value = last < 0 ? "" : String(last);
  phase.addEventListener("change", filter);
  search.addEventListener("input", filter);
  for (const radio of document.querySelectorAll('input[name="outcome"]')) radio.addEventListener("change", filter);
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  list.addEventListener("scroll", () => {
    if (drawn < shown.length && list.scrollTop + list.clientHeight > list.scrollHeight - 400) draw();
  });
  list.addEventListener("keydown", (event) => {
    const place = shown.indexOf(chosen);
    const target = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (event.key === "Enter") detail.focus();
    else if (target !== undefined && shown[target]) choose(shown[target]);
    else return;
    event.preventDefault();
  });
  document.querySelector(".viewer").hidden = false;
  filter();
})();
