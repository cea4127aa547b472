"use strict";
// The trajectory viewer. Text from rollouts goes into the page only as text nodes, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const list = byId("list"), detail = byId("detail"), phase = byId("phase"), search = byId("search");
  const PAGE = 150;
  const EVIDENCE_TEXT = 420;
  let shown = [];      // the rollouts that pass the filters
  let drawn = 0;       // how many of them stand in the list
  let chosen = null;

  const make = (tag, kind, ...content) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    for (const piece of content) if (piece !== null && piece !== undefined) node.append(piece);
    return node;
  };
  const badge = (text, kind) => make("span", "badge " + (kind || ""), text);
  const sign = (rollout) => {
    const node = make("span", "sign " + (rollout.right ? "right" : "wrong"), rollout.right ? "✓" : "✗");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", rollout.right ? "right" : "wrong");
    return node;
  };
  const number = (value) => String(Math.round(value * 1000) / 1000);

  for (const rollout of data.rollouts) {
    rollout.questionId = rollout.id.slice(0, rollout.id.lastIndexOf("#"));
    rollout.words = [rollout.id, rollout.question, rollout.main.answer || "", ...rollout.answers].join("\n").toLowerCase();
  }
  const sameQuestion = new Map();
  for (const rollout of data.rollouts) {
    if (!sameQuestion.has(rollout.questionId)) sameQuestion.set(rollout.questionId, []);
    sameQuestion.get(rollout.questionId).push(rollout);
  }

  const trace = traceView({ data, make, badge });

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
    if (rollout.trace) meta.append(trace.grounds(rollout));
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
    detail.replaceChildren(...(rollout ? describe(rollout) : [make("p", "note", "Nothing to show.")]));
  };

  // --- one trajectory -----------------------------------------------------------------------------------
  const describe = (rollout) => {
    const badges = make("div", "badges",
      badge(rollout.right ? "right" : "wrong", rollout.right ? "good" : "bad"),
      badge(data.phases[rollout.phase].name), badge(rollout.outcome.replaceAll("_", " ")));
    if (rollout.malformed) badges.append(badge(`${rollout.malformed} malformed`, "warn"));
    if (rollout.accepted) badges.append(badge("accepted for training", "accent"));
    if (rollout.type) badges.append(badge(rollout.type));
    if (rollout.hops) badges.append(badge(`${rollout.hops} hop${rollout.hops > 1 ? "s" : ""}`));
    if (rollout.trace) {
      badges.append(trace.grounds(rollout));
      return [make("h3", "", rollout.question), badges, also(rollout), ...trace.describe(rollout), apart(rollout), footnote(rollout)]
        .filter((node) => node !== null);
    }
    return [make("h3", "", rollout.question), badges, verdict(rollout), also(rollout), ...dialogue(rollout.main), apart(rollout),
      footnote(rollout)].filter((node) => node !== null);
  };

  // What no turn called, and what is recorded for scoring only.
  const apart = (rollout) => rollout.apart.length
    ? make("details", "apart", make("summary", "", `Recorded apart (${rollout.apart.length})`),
      make("div", "called", ...rollout.apart.map((one) => card(one))))
    : null;

  const verdict = (rollout) => {
    const box = make("div", "verdict",
      make("div", "", make("h4", "", "answer"), make("p", "", rollout.main.answer === null ? "none" : rollout.main.answer)),
      make("div", "", make("h4", "", "accepted answers"), make("p", "", rollout.answers.join(" · "))),
      make("div", "", make("h4", "", "rewards"), make("p", "", listed(rollout.rewards) || "none")));
    if (rollout.gold.length) {
      const items = rollout.gold.map((one) => make("li", "", make("span", "", one.name),
        one.selected ? badge("selected", "good") : one.retrieved ? badge("retrieved", "warn") : badge("not found", "bad")));
      box.append(make("div", "", make("h4", "", "gold evidence"), make("ul", "goldlist", ...items)));
    }
    return box;
  };

  const also = (rollout) => {
    const others = sameQuestion.get(rollout.questionId).filter((one) => one !== rollout);
    if (!others.length) return null;
    const buttons = others.slice(0, 12).map((other) => {
      const node = make("button", "", sign(other), ` ${data.phases[other.phase].name}` + (other.attempt ? ` #${other.attempt + 1}` : ""));
      node.type = "button";
      node.addEventListener("click", () => {
        if (!shown.includes(other)) {
          phase.value = "";
          search.value = "";
          document.querySelector('input[name="outcome"][value="all"]').checked = true;
          chosen = other;
          filter();
        } else choose(other);
        detail.focus({ preventScroll: true });
      });
      return node;
    });
    return make("div", "also", "Same question:", ...buttons);
  };

  const dialogue = (one, evidenceToo = true) => one.turns.map((turn, place) => {
    const agent = turn.by === "agent";
    const node = make("div", `turn ${turn.by}${turn.malformed ? " bad" : ""}`);
    const found = evidenceToo && turn.evidence ? evidence(turn.evidence) : null;
    if (place === 0 && !agent) {
      node.append(make("details", "", make("summary", "", "Prompt"), make("div", "said env", turn.text)));
      if (found) node.append(found);
      return node;
    }
    const called = turn.called || [], queries = turn.queries || [];
    node.append(make("div", "who", make("b", "", agent ? one.role : "environment"),
      called.length > 1 ? `calls ${called.length} side by side` : null));
    if (agent) node.append(spoken(turn.text));
    else node.append(make("div", "said env", turn.text.trim()));
    if (turn.malformed) node.append(make("div", "malformed", `Malformed: ${turn.malformed}`));
    if (turn.rewards) node.append(make("p", "note", `rewards: ${listed(turn.rewards)}`));
    if (found) node.append(found);
    // Where each query has its own call, the call's card is headed by it.
    const headings = called.length === queries.length ? queries : [];
    if (queries.length && !headings.length) node.append(make("ul", "queries", ...queries.map((query) => make("li", "", query))));
    if (called.length) node.append(make("div", "called", ...called.map((other, number) => card(other, headings[number]))));
    return node;
  });

  const listed = (values) => Object.entries(values).map(([name, value]) => `${name} ${number(value)}`).join(", ");

  // An agent's text with its tags made visible; what stands outside of tags is shown as it is.
  const spoken = (text) => {
    const node = make("div", "said");
    const tags = /<([a-z_]+)>([\s\S]*?)<\/\1>/g;
    let end = 0;
    const outside = (raw) => { if (raw.trim()) node.append(make("div", "part raw", raw.trim())); };
    for (const match of text.matchAll(tags)) {
      outside(text.slice(end, match.index));
      const part = make("div", `part ${match[1]}`, match[2].trim());
      part.dataset.tag = match[1];
      node.append(part);
      end = match.index + match[0].length;
    }
    outside(text.slice(end));
    return node;
  };

  // A trajectory beside the main one. What a single turn had before it is shown with it, and its dialogue is folded.
  const card = (one, heading) => {
    const spokenTurns = one.turns.filter((turn) => turn.by === "agent");
    const items = one.turns.flatMap((turn) => turn.evidence || []);
    const single = spokenTurns.length < 2;
    return make("section", "trajectory",
      make("div", "who", `${one.role} ${one.id}`, one.use === "training" ? null : badge(`for ${one.use} only`)),
      heading ? make("h4", "", heading) : null,
      single && items.length ? evidence(items) : null,
      one.answer === null ? make("p", "malformed", "No answer") : make("p", "sentence", one.answer),
      ...spokenTurns.filter((turn) => turn.malformed).map((turn) => make("div", "malformed", `Malformed: ${turn.malformed}`)),
      make("details", "", make("summary", "", "Dialogue"), ...dialogue(one, !single)));
  };

  const evidence = (items) => {
    const nodes = items.map(([place, score, selected, gold, parts], index) => {
      const item = data.evidence[place];
      const head = make("div", "head", make("span", "note", `[${index}]`), item.title ? make("b", "", item.title) : null,
        selected ? badge("selected", "accent") : null, gold ? badge("gold", "gold") : null, make("span", "score", score.toFixed(3)));
      const text = item.text.length > EVIDENCE_TEXT ? item.text.slice(0, EVIDENCE_TEXT) + " …" : item.text;
      const node = make("li", `${selected ? "selected" : ""} ${gold ? "gold" : ""}`, head, make("div", "text", text),
        item.entities ? make("p", "note", `entities: ${(item.entity_names || item.entities).join(" · ")}`) : null,
        item.query_entities ? make("p", "note", `entities of the query: ${item.query_entities.join(" · ") || "none"}`) : null,
        parts ? make("p", "note", `score: ${listed(parts)}`) : null,
        item.source ? make("p", "note", `from passage ${item.source.passage}`) : null);
      if (item.text.length > EVIDENCE_TEXT) node.title = item.text;
      return node;
    });
    const box = make("ul", "evidence", ...nodes);
    box.setAttribute("aria-label", "Retrieved evidence");
    return box;
  };

  const footnote = (rollout) => {
    const node = make("p", "note", `${rollout.id} · seed ${rollout.seed} · ${rollout.tokens} sampled tokens · weights `,
      make("code", "", rollout.weights.slice(0, 12)), " · corpus ", make("code", "", rollout.corpus.slice(0, 12)));
    node.title = `weights ${rollout.weights}\ncorpus ${rollout.corpus}`;
    return node;
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
