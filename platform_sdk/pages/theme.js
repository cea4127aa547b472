"use strict";
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement.style;
  const dark = root.colorScheme ? root.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.colorScheme = dark ? "light" : "dark";
});
