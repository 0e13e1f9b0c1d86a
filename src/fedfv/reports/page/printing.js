import { fit } from "./draw.js";

// Draws the figures for paper while the page is printed, in light colours and not wider than a sheet, and opens the helps,
// which nobody can open on paper. What the reader chose stays.
export function watchPrinting(drawAll) {
  let opened = [];
  const root = document.documentElement;
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.help:not([open])")];
    opened.forEach((each) => each.setAttribute("open", ""));
    root.dataset.printing = "yes";
    drawAll();
  });
  addEventListener("afterprint", () => {
    opened.forEach((each) => each.removeAttribute("open"));
    delete root.dataset.printing;
    drawAll();
    fit();
  });
}
