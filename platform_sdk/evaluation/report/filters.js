"use strict";
// Which trajectories are listed. Filters that would leave everything are not offered.
const filtersOf = (data, sameQuestion, changed) => {
  const byId = (id) => document.getElementById(id);
  const outcome = () => document.querySelector('input[name="outcome"]:checked').value;
  const OUTCOMES = {
    all: () => true,
    right: (rollout) => rollout.right,
    wrong: (rollout) => !rollout.right,
    malformed: (rollout) => rollout.malformed > 0,
    accepted: (rollout) => rollout.accepted,
    ungrounded: (rollout) => rollout.trace !== null && ["partial", "other", "none"].includes(rollout.trace.grounds),
  };
  const phase = byId("phase"), search = byId("search"), hops = byId("hops"), type = byId("type"), change = byId("change");
  const reward = byId("reward"), low = byId("reward-low"), high = byId("reward-high");

  // How a question went from the first evaluation to the last one.
  const place = (name) => data.phases.findIndex((one) => one.name === name);
  const [before, after] = [place(data.before), place(data.after)];
  const changeOf = (rollout) => {
    const [old, now] = [before, after].map((wanted) => sameQuestion(rollout).find((one) => one.phase === wanted));
    if (!old || !now) return "";
    return old.right === now.right ? (now.right ? "both-right" : "both-wrong") : now.right ? "better" : "worse";
  };

  const offer = (select, values, label = (value) => value) => {
    const distinct = [...new Set(values)].sort((a, b) => (a > b ? 1 : -1));
    for (const value of distinct) select.append(new Option(label(value), String(value)));
    select.closest(".field").hidden = distinct.length < 2;
  };
  phase.append(new Option(`all phases (${data.rollouts.length})`, ""));
  data.phases.forEach((one, number) => { if (one.shown) phase.append(new Option(`${one.name} (${one.shown})`, String(number))); });
  offer(hops, data.rollouts.map((rollout) => rollout.hops).filter((value) => value !== null));
  offer(type, data.rollouts.map((rollout) => rollout.type).filter(Boolean));
  offer(reward, data.rollouts.flatMap((rollout) => Object.keys(rollout.rewards)), (name) => name.replaceAll("_", " "));
  change.closest(".field").hidden = before < 0 || after < 0;
  if (!data.rollouts.some(OUTCOMES.accepted)) document.querySelector('input[value="accepted"]').parentNode.remove();
  if (!data.rollouts.some((rollout) => rollout.trace)) document.querySelector('input[value="ungrounded"]').parentNode.remove();
  const last = data.phases.map((one) => one.shown > 0).lastIndexOf(true);
  phase.value = last < 0 ? "" : String(last);

  const within = (rollout) => {
    if (!reward.value) return true;
    const value = rollout.rewards[reward.value];
    return value !== undefined && !(low.value !== "" && value < Number(low.value)) && !(high.value !== "" && value > Number(high.value));
  };
  const passes = (rollout) => (phase.value === "" || rollout.phase === Number(phase.value))
    && (hops.value === "" || String(rollout.hops) === hops.value) && (type.value === "" || rollout.type === type.value)
    && (change.value === "" || changeOf(rollout) === change.value) && within(rollout) && OUTCOMES[outcome()](rollout)
    && rollout.words.includes(search.value.trim().toLowerCase());
  const clear = () => {
    for (const field of [phase, search, hops, type, change, reward, low, high]) field.value = "";
    document.querySelector('input[name="outcome"][value="all"]').checked = true;
  };

  const form = document.querySelector(".filters");
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  return { passes, clear, phase: () => phase.value };
};
