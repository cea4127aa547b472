"use strict";
// Buttons that save what is shown: a table as CSV, a figure as SVG or PNG, with its title and legend.
(() => {
  const { make } = hypergraph;
  const STYLE = ["fill", "stroke", "stroke-width", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family"];
  const HEAD = 26, LINE = 18;

  const save = (name, blob) => {
    const link = make("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const plain = (text) => text.replace(/\s+/g, " ").trim();
  const fileName = (text) => plain(text).toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "export";

  // --- tables -------------------------------------------------------------------------------------------
  // A cell of a value and its interval becomes three: the value, its low and its high end.
  const cellOf = (node) => {
    const small = node.querySelector("small"), copy = node.cloneNode(true);
    for (const inner of copy.querySelectorAll("small")) inner.remove();
    return { text: plain(copy.textContent), ends: small ? plain(small.textContent).split(" to ") : [] };
  };
  const field = (text) => {
    const number = text.replace(/−/g, "-").replace(/(\d),(?=\d{3})/g, "$1").replace(/^–$/, "");
    if (/^[+-]?[\d.]*(e[+-]?\d+)?$/.test(number)) return number;
    const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;  // a spreadsheet reads those as a formula
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = (table) => {
    const rows = [...table.rows].map((row) => [...row.cells].map(cellOf));
    const wide = rows[0].map((_, place) => rows.slice(1).some((row) => row[place] && row[place].ends.length === 2));
    return rows.map((row, line) => row.flatMap((cell, place) => {
      if (!wide[place]) return [field([cell.text, ...(line ? cell.ends : [])].join(" ").trim())];
      const [low, high] = line ? [cell.ends[0] || "", cell.ends[1] || ""] : [`${cell.text} low`, `${cell.text} high`];
      return [cell.text, low, high].map(field);
    }).join(",")).join("\r\n") + "\r\n";
  };

  // --- figures ------------------------------------------------------------------------------------------
  const element = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text) node.textContent = text;
    return node;
  };
  const standalone = (svg, title, legend, axis) => {
    const [, , width, long] = svg.getAttribute("viewBox").split(" ").map(Number), height = long + (axis ? LINE : 0), page = getComputedStyle(document.body);
    const body = element("g", {}), ink = page.color, font = page.fontFamily;
    const places = [];
    let x = 8, y = HEAD + 14;
    for (const one of legend) {
      const room = 24 + 7 * one.label.length;
      if (x + room > width && x > 8) [x, y] = [8, y + LINE];
      places.push({ ...one, x, y });
      x += room;
    }
    const top = y + 8;
    const all = element("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: height + top, viewBox: `0 0 ${width} ${height + top}` });
    all.append(element("rect", { width, height: height + top, fill: getComputedStyle(svg.closest(".card")).backgroundColor }),
      element("text", { x: 8, y: 20, fill: ink, "font-family": font, "font-size": 14, "font-weight": 600 }, title));
    for (const one of places) {
      all.append(element("rect", { x: one.x, y: one.y - 9, width: 9, height: 9, rx: 2, fill: one.colour }),
        element("text", { x: one.x + 14, y: one.y, fill: ink, "font-family": font, "font-size": 11 }, one.label));
    }
    if (axis) all.append(element("text", { x: width / 2, y: top + long + 10, "text-anchor": "middle", fill: ink, "font-family": font, "font-size": 11 }, axis));
    const copy = svg.cloneNode(true), from = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, place) => {
      const style = getComputedStyle(from[place]);
      node.setAttribute("style", STYLE.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    });
    body.setAttribute("transform", `translate(0 ${top})`);
    body.append(...copy.childNodes);
    all.append(body);
    return new XMLSerializer().serializeToString(all);
  };
  const png = (text) => new Promise((resolve) => {
    const picture = new Image();
    picture.onload = () => {
      const canvas = make("canvas");
      [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(resolve, "image/png");
    };
    picture.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  });

  // --- buttons ------------------------------------------------------------------------------------------
  const buttons = (...ones) => make("p", "exports", ...ones.map(([label, told, action]) => {
    const node = make("button", "", label);
    node.type = "button";
    node.setAttribute("aria-label", told);
    node.addEventListener("click", action);
    return node;
  }));
  for (const table of document.querySelectorAll("table[data-export]")) {
    const name = table.dataset.export;
    table.closest(".scroll").after(buttons(["CSV", `Save the table ${name} as CSV`,
      () => save(`${name}.csv`, new Blob(["\ufeff", csv(table)], { type: "text/csv" }))]));
  }
  for (const svg of document.querySelectorAll("svg.chart")) {
    const card = svg.closest(".card"), text = (selector) => plain((card.querySelector(selector) || {}).textContent || "");
    const title = text("figcaption") || svg.getAttribute("aria-label");
    const drawn = () => standalone(svg, title, [...card.querySelectorAll(".legend > span")].map((one) => ({
      label: plain(one.textContent), colour: getComputedStyle(one.querySelector(".key")).backgroundColor })), text(".axis"));
    svg.parentNode.append(buttons(
      ["SVG", `Save the figure ${title} as SVG`, () => save(`${fileName(title)}.svg`, new Blob([drawn()], { type: "image/svg+xml" }))],
      ["PNG", `Save the figure ${title} as PNG`, async () => save(`${fileName(title)}.png`, await png(drawn()))]));
  }
})();
