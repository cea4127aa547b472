"use strict";
// An entity's hyperedges: the first that match the search are drawn, all of them are listed.
(() => {
  const LISTED = 100;
  const { make, name, draw } = hypergraph;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const words = (edge) => [edge.text, edge.passage, ...edge.entities.map((one) => one.name)].join("\n").toLowerCase();
  const edges = data.hyperedges.map((edge, place) => ({
    label: String(place + 1), passage: edge.passage, title: `passage ${edge.passage}`, text: edge.text, words: words(edge),
    entities: edge.entities.map((one) => ({ id: one.entity, name: one.name })),
  }));
  let found = edges, listed = 0;

  const list = () => {
    const end = Math.min(listed + LISTED, found.length);
    for (; listed < end; listed++) {
      const edge = found[listed], number = make("th", "n", edge.label);
      number.scope = "row";
      const entities = edge.entities.flatMap((one, place) => [place ? " · " : "", name(one.name)]);
      byId("rows").append(make("tr", "", number, make("td", "", name(edge.text)), make("td", "", ...entities), make("td", "", name(edge.passage))));
    }
    byId("more").hidden = listed >= found.length;
  };

  const show = () => {
    const wanted = byId("search").value.trim().toLowerCase();
    found = wanted ? edges.filter((edge) => edge.words.includes(wanted)) : edges;
    byId("count").textContent = `${found.length} of ${edges.length} hyperedges match.`;
    byId("drawn").replaceChildren(found.length
      ? draw({ edges: found, roots: [{ id: data.entity, name: data.name }], told: `Hyperedges of ${data.name}` })
      : make("p", "note", "Nothing matches this search."));
    byId("rows").replaceChildren();
    listed = 0;
    list();
  };

  byId("search").addEventListener("input", show);
  byId("more").addEventListener("click", list);
  show();
})();
