"use strict";
// One trajectory: its verdict, its steps, its turns and what they retrieved. Text from rollouts goes into the page only as
// text nodes, never as markup.
const trajectoryView = ({ data, make, number, badge, sign, sameQuestion, open, linkOf }) => {
  const EVIDENCE_TEXT = 420;
  const trace = traceView({ data, make, badge });
  const subgraph = subgraphView({ data, make, badge, number });
  const steps = stepsView({ data, make, number, ...subgraph });

  const describe = (rollout) => {
    const badges = make("div", "badges",
      badge(rollout.right ? "right" : "wrong", rollout.right ? "good" : "bad"),
      badge(data.phases[rollout.phase].name), badge(rollout.outcome.replaceAll("_", " ")));
    if (rollout.malformed) badges.append(badge(`${rollout.malformed} malformed`, "warn"));
    if (rollout.program) badges.append(badge(`${rollout.program.threads} thread${rollout.program.threads === 1 ? "" : "s"}`));
    if (rollout.accepted) badges.append(badge("accepted for training", "accent"));
    if (rollout.type) badges.append(badge(rollout.type));
    if (rollout.hops) badges.append(badge(`${rollout.hops} hop${rollout.hops > 1 ? "s" : ""}`));
    if (rollout.trace) {
      badges.append(trace.grounds(rollout));
      return [make("h3", "", rollout.question), badges, also(rollout), ...trace.describe(rollout), apart(rollout), footnote(rollout)]
        .filter((node) => node !== null);
    }
    return [make("h3", "", rollout.question), badges, verdict(rollout), also(rollout), steps(rollout), ...dialogue(rollout.main, rollout.gold), apart(rollout),
      program(rollout), footnote(rollout)].filter((node) => node !== null);
  };

  // Threads of a program beside its main one, trajectories that no turn called, and those recorded for scoring only.
  const apart = (rollout) => rollout.apart.length
    ? make("details", "apart", make("summary", "", `${rollout.program ? "Other threads" : "Recorded apart"} (${rollout.apart.length})`),
      make("div", "called", ...rollout.apart.map((one) => card(one, rollout.gold))))
    : null;

  // The end of a user's program: what it asked for and did not get, and the last of its standard error.
  const program = (rollout) => {
    if (!rollout.program) return null;
    const { status, notes, measures, stderr } = rollout.program;
    const node = make("details", "apart", make("summary", "", status === null ? "Program" : `Program (exit status ${status})`));
    if (notes.length) node.append(make("ul", "queries", ...notes.map((note) => make("li", "", note))));
    if (Object.keys(measures).length) node.append(make("p", "", `It reported ${listed(measures)}.`));
    node.append(stderr.trim() ? make("div", "said env", stderr.trim()) : make("p", "", "Nothing on standard error."));
    return node;
  };

  const verdict = (rollout) => {
    const box = make("div", "verdict",
      make("div", "", make("h4", "", "answer"), make("p", "", rollout.main.answer === null ? "none" : rollout.main.answer)),
      make("div", "", make("h4", "", "accepted answers"), make("p", "", rollout.answers.join(" · "))),
      make("div", "", make("h4", "", "rewards"), make("p", "", listed(rollout.rewards) || "none")));
    if (rollout.gold.length) {
      const items = rollout.gold.map((one) => make("li", "", make("span", "", one.name),
        one.selected ? badge("selected", "good") : one.retrieved ? badge("retrieved", rollout.selects ? "warn" : "good") : badge("not found", "bad")));
      box.append(make("div", "", make("h4", "", "gold evidence"), make("ul", "goldlist", ...items)));
    }
    return box;
  };

  const also = (rollout) => {
    const others = sameQuestion(rollout).filter((one) => one !== rollout);
    if (!others.length) return null;
    const buttons = others.slice(0, 12).map((other) => {
      const node = make("button", "", sign(other), ` ${data.phases[other.phase].name}` + (other.attempt ? ` #${other.attempt + 1}` : ""));
      node.type = "button";
      node.addEventListener("click", () => open(other));
      return node;
    });
    return make("div", "also", "Same question:", ...buttons);
  };

  const dialogue = (one, gold, evidenceToo = true) => one.turns.map((turn, place) => {
    const agent = turn.by === "agent";
    const node = make("div", `turn ${turn.by}${turn.malformed ? " bad" : ""}`);
    const found = evidenceToo && turn.evidence ? evidence(turn.evidence, gold) : [];
    if (place === 0 && !agent) {
      node.append(make("details", "", make("summary", "", "Prompt"), make("div", "said env", turn.text)));
      if (turn.queries) node.append(make("ul", "queries", ...turn.queries.map((query) => make("li", "", query))));
      node.append(...found);
      return node;
    }
    const called = turn.called || [], queries = turn.queries || [];
    node.append(make("div", "who", make("b", "", agent ? one.role : "environment"),
      called.length > 1 ? `calls ${called.length} side by side` : null));
    if (agent) node.append(spoken(turn.text));
    else {
      const said = make("div", "said env", turn.text.trim()), drawn = found.some((one) => one.matches(".subgraph[open]"));
      node.append(drawn ? make("details", "told", make("summary", "", "What the agent read"), said) : said, ...found);
    }
    if (turn.malformed) node.append(make("div", "malformed", `Malformed: ${turn.malformed}`));
    // Where each query has its own call, the call's card is headed by it.
    const headings = called.length === queries.length ? queries : [];
    const unsaid = headings.length ? [] : queries.filter((query) => !turn.text.includes(query));
    if (unsaid.length) node.append(make("ul", "queries", ...unsaid.map((query) => make("li", "", query))));
    for (const tool of turn.tools || []) {
      node.append(make("div", `tool${tool.error ? " failed" : ""}`, make("b", "", tool.name), ` ${tool.call} `, make("span", "result", `= ${tool.result}`)));
    }
    if (called.length) node.append(make("div", "called", ...called.map((other, number) => card(other, gold, headings[number]))));
    return node;
  });

  const listed = (values) => Object.entries(values).filter(([, value]) => typeof value === "number")
    .map(([name, value]) => `${name} ${number(value)}`).join(", ");

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
  const card = (one, gold, heading) => {
    const spokenTurns = one.turns.filter((turn) => turn.by === "agent");
    const items = one.turns.flatMap((turn) => turn.evidence || []);
    const single = spokenTurns.length < 2;
    return make("section", "trajectory",
      make("div", "who", `${one.role} ${one.id}`, one.reason ? badge(`thread: ${one.reason}`) : null,
        one.use === "training" ? null : badge(`for ${one.use} only`)),
      heading ? make("h4", "", heading) : null,
      ...(single && items.length ? evidence(items, gold) : []),
      one.answer !== null ? make("p", "sentence", one.answer) : one.reason ? null : make("p", "malformed", "No answer"),
      ...spokenTurns.filter((turn) => turn.malformed).map((turn) => make("div", "malformed", `Malformed: ${turn.malformed}`)),
      make("details", "", make("summary", "", "Dialogue"), ...dialogue(one, gold, !single)));
  };

  // Hyperedges are drawn, which says all that a list would; whatever else has entities is listed, and drawn if asked for.
  const evidence = (items, gold) => {
    const drawn = items.every(([place]) => data.evidence[place].kind === "hyperedge");
    return [subgraph.draw(items, gold, drawn), drawn ? null : listOf(items)].filter((node) => node !== null);
  };

  const listOf = (items) => {
    const nodes = items.map(([place, score, selected, gold, parts], index) => {
      const item = data.evidence[place], passage = item.kind === "passage";
      const head = make("div", "head", make("span", "note", `[${index}]`), item.title ? make("b", "", item.title) : null,
        selected ? badge("selected", "accent") : null, gold ? badge("gold", "gold") : null, make("span", "score", score.toFixed(3)));
      const text = item.text.length > EVIDENCE_TEXT ? item.text.slice(0, EVIDENCE_TEXT) + " …" : item.text;
      const node = make("li", `${selected ? "selected" : ""} ${gold ? "gold" : ""}`, head, make("div", "text", text),
        parts && (passage || !item.entities) ? make("p", "note", `score: ${listed(parts)}`) : null,
        passage && item.entities && item.entities.length ? make("p", "note", `found through: ${item.entities.join(", ")}`) : null);
      if (item.text.length > EVIDENCE_TEXT) node.title = item.text;
      return node;
    });
    const box = make("ul", "evidence", ...nodes);
    box.setAttribute("aria-label", "Retrieved evidence");
    return box;
  };

  const footnote = (rollout) => {
    const link = make("a", "", "Link to this trajectory");
    link.href = linkOf(rollout);
    const node = make("p", "note", `${rollout.id} · seed ${rollout.seed} · ${rollout.tokens} sampled tokens · weights `,
      make("code", "", rollout.weights.slice(0, 12)), " · corpus ", make("code", "", rollout.corpus.slice(0, 12)), " · ", link);
    node.title = `weights ${rollout.weights}\ncorpus ${rollout.corpus}`;
    return node;
  };

  return { describe, grounds: trace.grounds };
};
