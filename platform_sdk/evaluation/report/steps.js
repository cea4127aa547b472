"use strict";
// Rewards and advantages of a trajectory's steps: one row for each turn of the agent.
const stepsView = ({ data, make, number, scrolled, heading }) => (rollout) => {
  const turns = rollout.main.turns.filter((turn) => turn.by === "agent");
  const steps = rollout.steps, credited = steps.some((step) => step.advantage !== undefined);
  const names = [...new Set(steps.flatMap((step) => Object.keys(step.rewards)))];
  if (!names.length && !credited) return null;
  const outcome = rollout.rewards[data.outcome];
  const maximum = (values) => Math.max(...values.map(Math.abs), 1e-9);
  const most = maximum(steps.flatMap((step) => Object.values(step.rewards)));
  const largest = maximum(steps.map((step) => step.advantage || 0));
  const cell = (value, full) => {
    const node = make("td", "n", value === undefined ? "–" : number(value));
    if (value) {
      node.classList.add("worth", value < 0 ? "below" : "above");
      node.style.setProperty("--s", Math.abs(value) / full);
    }
    return node;
  };
  const did = (turn) => turn.malformed ? "malformed" : turn.queries ? turn.queries.join(" · ") : turn.tools ? turn.tools.map((tool) => `${tool.name}: ${tool.call}`).join(" · ") : rollout.main.answer === null ? "–" : `answer: ${rollout.main.answer}`;
  const caption = credited ? "Rewards and advantages per step" : "Rewards per step";
  const node = make("table", "steps", make("caption", "", caption),
    make("thead", "", make("tr", "", heading("step", "col"), heading("", "col"), ...names.map((name) => heading(name.replaceAll("_", " "), "col", "n")),
      outcome === undefined ? null : heading("outcome", "col", "n"), credited ? heading("advantage", "col", "n") : null)),
    make("tbody", "", ...turns.map((turn, place) => make("tr", turn.malformed ? "malformed-step" : "", heading(String(place + 1), "row"),
      make("td", "did", did(turn)), ...names.map((name) => cell(steps[place].rewards[name], most)),
      outcome === undefined ? null : make("td", "n", number(outcome)), credited ? cell(steps[place].advantage, largest) : null))));
  return scrolled(node, caption);
};
