"use strict";
// What each step of a trajectory was worth: the rewards that its turns have, one row for each turn of the agent.
const stepsView = ({ data, make, number, scrolled, heading }) => (rollout) => {
  const turns = rollout.main.turns.filter((turn) => turn.by === "agent");
  const names = [...new Set(turns.flatMap((turn) => Object.keys(turn.rewards || {})))];
  if (!names.length) return null;
  const outcome = rollout.rewards[data.outcome];
  const most = Math.max(...turns.flatMap((turn) => Object.values(turn.rewards || {}).map(Math.abs)), 1e-9);
  const cell = (value) => {
    const node = make("td", "n", value === undefined ? "–" : number(value));
    if (value) {
      node.classList.add("worth", value < 0 ? "below" : "above");
      node.style.setProperty("--s", Math.abs(value) / most);
    }
    return node;
  };
  const did = (turn) => turn.malformed ? "malformed" : turn.queries ? turn.queries.join(" · ") : rollout.main.answer === null ? "–" : `answer: ${rollout.main.answer}`;
  const node = make("table", "steps", make("caption", "", "Rewards per step"),
    make("thead", "", make("tr", "", heading("step", "col"), heading("", "col"), ...names.map((name) => heading(name.replaceAll("_", " "), "col", "n")),
      outcome === undefined ? null : heading("outcome", "col", "n"))),
    make("tbody", "", ...turns.map((turn, place) => make("tr", turn.malformed ? "malformed-step" : "", heading(String(place + 1), "row"),
      make("td", "did", did(turn)), ...names.map((name) => cell((turn.rewards || {})[name])),
      outcome === undefined ? null : make("td", "n", number(outcome))))));
  return scrolled(node, "Rewards per step");
};
