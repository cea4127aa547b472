"use strict";
// A drawing of hyperedges: on the right each with the entities that it alone has, on the left those that join them.
// Names and texts go into the page only as text nodes, never as markup. The nodes are elements, so names wrap and can be
// copied; an SVG behind them holds the lines, as thick as what the entity adds to the hyperedge's score.
const hypergraph = (() => {
  const DRAWN = 24, OWN = 8;

  const make = (tag, kind, ...content) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    for (const piece of content) if (piece !== null && piece !== undefined) node.append(piece);
    return node;
  };
  const name = (text) => {
    const node = make("bdi", "", text);  // of whatever direction: it turns round nothing beside it
    node.dir = "auto";
    return node;
  };
  const number = (value) => String(Math.round(value * 1000) / 1000);

  // An entity of several hyperedges, or of the query, stands on the left, where its hyperedges stand on average, so that
  // few lines cross. One that is in a single hyperedge stands with it.
  const placed = (edges, roots) => {
    const places = new Map(roots.map((one) => [one.id, { ...one, root: true, at: [] }]));
    edges.forEach((edge, place) => {
      for (const one of edge.entities) {
        if (!places.has(one.id)) places.set(one.id, { id: one.id, name: one.name, at: [] });
        places.get(one.id).at.push(place);
      }
    });
    const middle = ({ at }) => at.reduce((sum, place) => sum + place, 0) / at.length;
    return [...places.values()].filter((one) => one.at.length > (one.root ? 0 : 1)).sort((a, b) => middle(a) - middle(b));
  };

  const bar = (edge, longest) => {
    const values = edge.entities.filter((one) => one.value > 0);
    const parts = values.length ? values : (edge.parts || []).filter((one) => one.value > 0);
    if (!parts.length || !(longest > 0)) return null;
    const node = make("span", "parts");
    node.setAttribute("aria-hidden", "true");
    for (const one of parts) {
      const piece = make("i", one.root ? "root" : "");
      piece.style.width = `${(100 * one.value) / longest}%`;
      piece.title = `${one.name}: ${number(one.value)}`;
      node.append(piece);
    }
    return node;
  };

  const chip = (one, kind) => {
    const node = make("button", `entity ${kind}`, make("i", "spot"), name(one.name), make("span", "worth"));
    node.type = "button";
    node.tabIndex = -1;  // reached by the arrow keys from the hyperedges
    node.setAttribute("aria-pressed", "false");
    return node;
  };

  // The entities that are in this hyperedge alone, those first that add most to its score.
  const own = (edge, joint) => {
    const ones = edge.entities.filter((one) => !joint.has(one.id)).sort((a, b) => (b.value || 0) - (a.value || 0));
    const chips = ones.slice(0, OWN).map((one) => {
      const node = make("span", "entity", make("i", "spot"), name(one.name),
        one.value === undefined ? null : make("span", "worth", number(one.value)));
      return make("li", "", node);
    });
    if (ones.length > OWN) chips.push(make("li", "note", `and ${ones.length - OWN} more`));
    return chips.length ? make("ul", "own", ...chips) : null;
  };

  const box = (edge, longest) => {
    const head = make("span", "head", make("b", "", edge.label), edge.title ? name(edge.title) : null,
      edge.gold ? make("span", "mark-gold", "gold") : null,
      edge.score === undefined ? null : make("span", "score", number(edge.score)));
    const node = make("button", `edge${edge.gold ? " gold" : ""}`, head, bar(edge, longest), make("span", "text", name(edge.text)),
      edge.parts && edge.parts.length
        ? make("span", "words", edge.parts.map((one) => `${one.name} ${number(one.value)}`).join(" · ")) : null);
    node.type = "button";
    node.setAttribute("aria-pressed", "false");
    return node;
  };

  // edges: [{label, title, text, score, gold, parts: [{name, value}], entities: [{id, name, value}]}], best first;
  // roots: [{id, name}]; told: the accessible name.
  const draw = ({ edges: all, roots, told }) => {
    const edges = all.slice(0, DRAWN), rooted = new Set(roots.map((one) => one.id)), joint = placed(edges, roots);
    const longest = Math.max(0, ...edges.map((edge) => edge.score || 0));
    for (const edge of edges) for (const one of edge.entities) one.root = rooted.has(one.id);
    const boxes = edges.map((edge) => box(edge, longest));
    const chips = new Map(joint.map((one) => [one.id, chip(one, one.root ? "root" : "")]));
    const left = make("ul", "joint", ...[...chips.values()].map((node) => make("li", "", node)));
    const right = make("ol", "edges", ...edges.map((edge, place) => make("li", "", boxes[place], own(edge, chips))));
    const lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    lines.setAttribute("class", "lines");
    lines.setAttribute("aria-hidden", "true");
    const columns = joint.length ? [left, right] : [right];
    const node = make("div", "hypergraph", lines, ...columns);
    node.setAttribute("role", "group");
    node.setAttribute("aria-label", told);
    const most = Math.max(0, ...edges.flatMap((edge) => edge.entities.map((one) => one.value || 0)));
    const links = edges.flatMap((edge, place) => edge.entities.filter((one) => chips.has(one.id)).map((one) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", one.root ? "root" : "");
      path.style.strokeWidth = most > 0 ? 1 + (5 * Math.max(0, one.value || 0)) / most : 1.5;
      lines.append(path);
      return { path, edge: boxes[place], entity: chips.get(one.id), value: one.value };
    }));

    const route = () => {
      const frame = node.getBoundingClientRect();
      lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
      for (const { path, edge, entity } of links) {
        const from = edge.getBoundingClientRect(), to = entity.getBoundingClientRect();
        const [x1, x2] = [from.left - frame.left, to.right - frame.left];
        const [y1, y2] = [from.top + from.height / 2 - frame.top, to.top + to.height / 2 - frame.top], bend = (x1 + x2) / 2;
        path.setAttribute("d", `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`);
      }
    };
    new ResizeObserver(route).observe(node);

    const nodes = [...boxes, ...chips.values()];
    const choose = (chosen) => {
      node.classList.toggle("chosen", chosen !== null);
      const near = new Set([chosen]);
      for (const { path, edge, entity, value } of links) {
        const lit = edge === chosen || entity === chosen;
        path.classList.toggle("lit", lit);
        if (lit) near.add(edge).add(entity);
        if (edge === chosen) entity.lastChild.textContent = value === undefined ? "" : number(value);
      }
      for (const one of nodes) {
        one.classList.toggle("lit", near.has(one));
        one.setAttribute("aria-pressed", String(one === chosen));
        if (one.classList.contains("entity") && !(near.has(one) && boxes.includes(chosen))) one.lastChild.textContent = "";
      }
      route();
    };
    node.addEventListener("click", ({ target }) => {
      const one = target.closest("button");
      if (one) choose(one.getAttribute("aria-pressed") === "true" ? null : one);
    });
    node.addEventListener("keydown", (event) => {
      const at = columns.findIndex((one) => one.contains(event.target));
      const inside = (one) => [...one.querySelectorAll("button")];
      const place = at < 0 ? -1 : inside(columns[at]).indexOf(event.target);
      const beside = (one) => one && (one.querySelector("button.lit") || one.querySelector("button"));
      const target = { ArrowUp: () => inside(columns[at])[place - 1], ArrowDown: () => inside(columns[at])[place + 1],
        ArrowLeft: () => beside(columns[at - 1]), ArrowRight: () => beside(columns[at + 1]) }[event.key];
      if (event.key === "Escape") choose(null);
      else if (place >= 0 && target) (target() || event.target).focus();
      else return;
      event.preventDefault();
    });
    return make("div", "", node, all.length > DRAWN
      ? make("p", "note", `The first ${DRAWN} of ${all.length} hyperedges are drawn.`) : null);
  };

  return { draw, make, name, number };
})();
