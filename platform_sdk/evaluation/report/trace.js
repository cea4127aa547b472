"use strict";
// The decision trace: the response beside the passages it was given, with its citations as links to them.
// Text from rollouts goes into the page only as text nodes, never as markup.
const traceView = ({ data, make, badge }) => {
  const GROUNDS = {
    exact: ["the gold passages", "good", "It chose exactly the gold passages."],
    partial: ["some gold passages", "warn", "It chose some gold passages, and missed some or chose others too."],
    other: ["other passages", "bad", "It chose no gold passage."],
    none: ["no passages chosen", "", "The response names no passages."],
    unknown: ["gold unknown", "", "The question names no gold passages."],
  };
  const STANDING = { "11": ["right", "chosen · gold"], "10": ["stray", "chosen · not gold"], "01": ["missed", "gold · not chosen"], "00": ["", ""] };
  const CITATION = /\[\s*(\d{1,6}(?:\s*,\s*\d{1,6})*)\s*\]/g;

  const given = (rollout) => rollout.main.turns[0].evidence;

  const grounds = (rollout) => {
    const [text, kind, title] = GROUNDS[rollout.trace.grounds];
    const node = badge(text, kind);
    node.title = title;
    return node;
  };

  const passage = (item, index, cited) => {
    const [place, , chosen, gold] = item, one = data.evidence[place];
    const [kind, said] = STANDING[`${chosen}${gold}`];
    const head = make("summary", "", make("span", "number", String(index + 1)), make("b", "", one.title || one.id),
      said ? make("span", "standing", said) : null, cited ? make("span", "note", `cited ${cited}×`) : null);
    const node = make("details", `passage ${kind}`, head, make("p", "", one.text));
    node.open = kind !== "" || cited > 0;
    return node;
  };

  // The section's text with every citation as a link; `count` learns how often each passage is cited.
  const linked = (text, rollout, passages, count) => {
    const node = make("div", "text");
    let end = 0;
    for (const match of text.matchAll(CITATION)) {
      node.append(text.slice(end, match.index));
      const group = make("span", "cites", "[");
      match[1].split(",").forEach((number, place) => {
        if (place) group.append(", ");
        group.append(citation(Number(number), rollout, passages));
        count.set(Number(number), (count.get(Number(number)) || 0) + 1);
      });
      group.append("]");
      node.append(group);
      end = match.index + match[0].length;
    }
    node.append(text.slice(end));
    return node;
  };

  const citation = (number, rollout, passages) => {
    const item = given(rollout)[number - 1];
    if (!item) {
      const node = make("span", "cite nowhere", String(number));
      node.title = `There is no passage ${number}.`;
      return node;
    }
    const [kind, said] = STANDING[`${item[2]}${item[3]}`];
    const node = make("button", `cite ${kind}`, String(number));
    node.type = "button";
    node.title = `Passage ${number}${said ? `: ${said}` : ": neither chosen nor gold"}`;
    const target = () => passages.children[number - 1];
    node.addEventListener("click", () => {
      target().open = true;
      target().scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      for (const lit of passages.querySelectorAll(".lit")) lit.classList.remove("lit");
      target().classList.add("lit");
    });
    return node;
  };

  const rewards = (rollout) => make("ul", "rewards", ...Object.entries(rollout.rewards).map(([name, value]) =>
    make("li", value > 0 ? "" : "zero", make("span", "", name.replaceAll("_", " ")), make("b", "", String(Math.round(value * 1000) / 1000)))));

  const describe = (rollout) => {
    const passages = make("div", "passages"), cited = new Map();
    const sections = rollout.trace.sections.map(([tag, text]) => {
      const bare = text.replaceAll(CITATION, "").trim() === "";  // a list of passages cites nothing for a claim
      return make("section", `section ${tag ? "" : "outside"} ${tag === "answer" ? "final" : ""}`,
        make("h4", "", tag || "outside of the sections"), linked(text, rollout, passages, bare ? new Map() : cited));
    });
    passages.append(...given(rollout).map((item, index) => passage(item, index, cited.get(index + 1) || 0)));
    const answer = make("div", `outcome ${rollout.right ? "right" : "wrong"}`,
      make("div", "", make("h4", "", "answer"), make("p", "", rollout.main.answer === null ? "none" : rollout.main.answer)),
      make("div", "", make("h4", "", "accepted answers"), make("p", "", rollout.answers.join(" · "))),
      make("div", "wide", make("h4", "", "rewards"), rewards(rollout)));
    const prompt = rollout.main.turns.filter((turn) => turn.by === "environment").map((turn) => turn.text).join("\n\n");
    return [answer,
      make("div", "trace",
        make("div", "said-side", make("h4", "side", "Response"), ...sections,
          rollout.trace.malformed ? make("div", "malformed", `Malformed: ${rollout.trace.malformed}`) : null),
        make("div", "given-side", make("h4", "side", `Given passages (${given(rollout).length})`), passages)),
      make("details", "turn-prompt", make("summary", "", "Prompt"), make("div", "said env", prompt))];
  };

  return { grounds, describe };
};
