"use strict";
// What a turn retrieved, as a graph: its entities and the hyperedges that join them. For any evidence with entities.
const subgraphView = ({ data, make, badge, number }) => {
  const names = new Map();
  for (const item of data.evidence) (item.entities || []).forEach((id, place) => names.set(id, (item.entity_names || item.entities)[place]));

  // What an entity adds to the score: its share of the hyperedge times what it tells, where both are recorded.
  const worth = (parts) => parts && "S" in parts && "I" in parts ? parts.S * parts.I : undefined;

  const edgesOf = (items) => items
    .map(([place, score, , gold, parts = {}], index) => ({ item: data.evidence[place], score, gold, parts, label: String(index + 1) }))
    .filter(({ item }) => item.entities)
    .map(({ item, score, gold, parts, label }) => {
      const groups = Object.values(parts).filter((one) => typeof one === "object");
      return {
        label, score, gold, text: item.text, title: item.title, item,
        parts: Object.entries(parts).filter(([, one]) => typeof one === "number").map(([name, value]) => ({ name, value })),
        entities: item.entities.map((id) => {
          const own = Object.assign({}, ...groups.map((group) => group[id] || {}));
          return { id, name: names.get(id), value: worth(own), parts: own };
        }),
      };
    });

  // The entities linked from the query, by name or by similarity, that are in the hyperedges, and how many others it has.
  const rootsOf = (edges) => {
    const ids = [...new Set(edges.flatMap((edge) => edge.item.query_entities || []))];
    const met = new Set(edges.flatMap((edge) => edge.entities.map((one) => one.id)));
    const roots = ids.filter((id) => met.has(id)).map((id) => ({ id, name: names.get(id) }));
    return { roots, missed: ids.filter((id) => !met.has(id)) };
  };

  // The record gives the ids of the linked entities; their names are known where some hyperedge of the page has them.
  const missedLine = (ids) => {
    const known = ids.map((id) => names.get(id)).filter(Boolean), other = ids.length - known.length;
    const listed = [...known, ...(other ? [`${other} ${known.length ? "more" : ids.length > 1 ? "entities" : "entity"}`] : [])];
    return `Linked from the query, in none of these hyperedges: ${listed.join(", ")}.`;
  };

  const goldLine = (edges, gold) => {
    if (!gold.length) return null;
    const found = (one) => edges.filter((edge) => [edge.item.title, edge.item.id, edge.item.text].includes(one.name));
    return make("p", "gold-line", make("span", "note", "Gold: "), ...gold.map((one) => {
      const where = found(one).map((edge) => edge.label).join(", ");
      return badge(where ? `${one.name}: ${where}` : `${one.name}: not found here`, where ? "gold" : "");
    }));
  };

  const cell = (value) => make("td", "n", value === undefined ? "–" : number(value));
  const heading = (text, scope, kind) => {
    const node = make("th", kind, text);
    node.scope = scope;
    return node;
  };

  // The same as the drawing, row by row: a hyperedge, then its entities.
  const table = (edges, roots) => {
    const rooted = new Set(roots.map((one) => one.id));
    const columns = [...new Set(edges.flatMap((edge) => edge.entities.flatMap((one) => Object.keys(one.parts))))];
    const product = edges.some((edge) => edge.entities.some((one) => one.value !== undefined));
    const node = make("table", "", make("thead", "", make("tr", "", heading("hyperedge and its entities", "col"),
      ...columns.map((name) => heading(name, "col", "n")), product ? heading("S · I", "col", "n") : null, heading("score", "col", "n"))));
    for (const edge of edges) {
      const title = heading("", "rowgroup");
      title.colSpan = 1 + columns.length + Number(product);
      title.append(edge.label, " ", make("bdi", "", edge.text), edge.gold ? badge("gold", "gold") : "",
        make("small", "", edge.item.source ? `passage ${edge.item.title || edge.item.source.passage}` : ""),
        make("small", "", edge.parts.map((one) => `${one.name} ${number(one.value)}`).join(", ")));
      node.append(make("tbody", "", make("tr", "whole", title, cell(edge.score)), ...edge.entities.map((one) => {
        const row = heading("", "row");
        row.append(make("bdi", "", one.name), rooted.has(one.id) ? badge("linked from the query", "accent") : "");
        return make("tr", "", row, ...columns.map((name) => cell(one.parts[name])), product ? cell(one.value) : null, make("td"));
      })));
    }
    return make("details", "same", make("summary", "", "The same as a table"), scrolled(node, "Hyperedges and entities"));
  };

  const scrolled = (node, label) => {
    const box = make("div", "scroll", node);
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
    return box;
  };

  // Returns null where nothing that was retrieved has entities.
  const draw = (items, gold, open) => {
    const edges = edgesOf(items);
    if (!edges.length) return null;
    const { roots, missed } = rootsOf(edges), count = new Set(edges.flatMap((edge) => edge.entities.map((one) => one.id))).size;
    const told = `${edges.length} hyperedge${edges.length > 1 ? "s" : ""}, ${count} entities`
      + (roots.length ? `, ${roots.length} of them linked from the query` : "");
    const node = make("details", "subgraph", make("summary", "", "Subgraph ", make("small", "", told)));
    const fill = () => {
      if (!node.open || node.children.length > 1) return;
      const linked = edges.some((edge) => edge.item.query_entities);
      const said = missed.length ? missedLine(missed)
        : linked && !roots.length ? "No entity of the graph is linked from the query." : null;
      node.append(make("div", "drawn", hypergraph.draw({ edges, roots, told: `Subgraph: ${told}` })),
        ...[edges.some((edge) => edge.entities.some((one) => one.value !== undefined))
          ? make("p", "note", "A number at an entity, a piece of a bar and a line's width: what the entity adds to the score, S · I.") : null,
        said ? make("p", "note", said) : null, goldLine(edges, gold)].filter(Boolean),
        table(edges, roots));
    };
    node.addEventListener("toggle", fill);
    node.open = open;
    fill();
    return node;
  };

  return { draw, scrolled, heading };
};
