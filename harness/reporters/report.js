"use strict";
(() => {
  const cases = Array.from(document.querySelectorAll("details.case"));
  const form = document.getElementById("filter");
  const words = new Map();

  const haystack = (one) => {
    if (!words.has(one)) {
      const parts = one.querySelectorAll("summary, .case-title, .tag");
      words.set(one, Array.from(parts, (part) => part.textContent).join(" ").toLowerCase());
    }
    return words.get(one);
  };

  const apply = () => {
    const data = new FormData(form);
    const statuses = data.getAll("status");
    const subject = data.get("subject") || "";
    const tag = data.get("tag") || "";
    const needles = (data.get("text") || "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of cases) {
      const fits =
        (!statuses.length || statuses.includes(one.dataset.status)) &&
        (!subject || one.dataset.subject === subject) &&
        (!tag || one.dataset.tags.split(" ").includes(tag)) &&
        needles.every((needle) => haystack(one).includes(needle));
      one.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    for (const area of document.querySelectorAll(".area")) {
      area.hidden = !area.querySelector("details.case:not([hidden])");
    }
    const all = cases.length;
    document.getElementById("shown").textContent = shown === all ? all : `${shown} of ${all}`;
    document.getElementById("none").hidden = shown > 0 || all === 0;
  };

  // Only events that a finding cites have an id. The mark of any other is found by the number that
  // its title begins with, and gets an id when somebody wants to link to it.
  const mark = (one, number) => Array.from(one.querySelectorAll(".tl-marks > g"))
    .find((each) => each.querySelector("title").textContent.startsWith(`#${number} `));
  const row = (one, number) => Array.from(one.querySelectorAll(".events tbody tr"))
    .find((each) => parseInt(each.cells[0].textContent, 10) === number);
  const find = (id) => {
    const known = document.getElementById(id);
    const [, name, number] = known ? [] : /^(case-.*)-e(\d+)$/.exec(id) || [];
    const one = name && document.getElementById(name);
    const found = one && (mark(one, Number(number)) || row(one, Number(number)));
    if (found && !found.id) found.id = id;
    return known || found;
  };

  // The words of an event are in the page once, in the table; its tooltip gets them on opening.
  const complete = (one) => {
    const said = new Map();
    for (const each of one.querySelectorAll(".events tbody tr")) {
      said.set(parseInt(each.cells[0].textContent, 10), `: ${each.cells[4].textContent.trim()}`);
    }
    for (const title of one.querySelectorAll(".tl-marks > g > title")) {
      const [, number] = /^#(\d+) at [\d.]+ ms$/.exec(title.textContent) || [];
      if (number) title.textContent += said.get(Number(number)) || "";
    }
  };

  // A link to a case, to an event in its picture or to a row of its table opens what hides it.
  const reveal = () => {
    const target = find(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
      if (at.hidden) { form.reset(); apply(); }
    }
    target.scrollIntoView({ block: target.tagName === "DETAILS" ? "start" : "center", inline: "center" });
  };

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  document.getElementById("open-all").onclick = () => cases.forEach((one) => { one.open = !one.hidden; });
  document.getElementById("close-all").onclick = () => cases.forEach((one) => { one.open = false; });
  addEventListener("hashchange", reveal);
  document.addEventListener("toggle", (event) => {
    if (event.target.matches("details.case[open]")) complete(event.target);
  }, true);
  // From a row of the table to the event's place in the picture.
  document.addEventListener("click", (event) => {
    const cell = event.target.closest(".events td:first-child");
    if (!cell) return;
    const one = cell.closest("details.case");
    const number = parseInt(cell.textContent, 10);
    const found = mark(one, number);
    if (!found) return;
    found.id ||= `${one.id}-e${number}`;
    location.hash = found.id;
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      form.elements.text.focus();
    } else if (event.key === "Escape" && typing) {
      document.activeElement.blur();
    }
  });

  // Paper cannot be clicked: what needs attention is printed open.
  addEventListener("beforeprint", () => {
    for (const one of cases) {
      if (/^(fail|unexpected-pass|error|inconclusive)$/.test(one.dataset.status)) one.open = true;
    }
  });

  for (const code of document.querySelectorAll(".rerun > code")) {
    if (!navigator.clipboard) break;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    code.after(button);
    button.onclick = async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    };
  }

  // Storage is refused on file: URLs in some browsers; the choice then lasts as long as the page.
  const theme = document.getElementById("theme");
  const stored = { get: () => { try { return localStorage.getItem("harness-theme"); } catch { return null; } },
    set: (name) => { try { localStorage.setItem("harness-theme", name); } catch { /* see above */ } } };
  const names = ["auto", "light", "dark"];
  const show = (name) => {
    document.documentElement.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
  };
  show(names.includes(stored.get()) ? stored.get() : "auto");
  theme.hidden = false;
  theme.onclick = () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    stored.set(next);
    show(next);
  };

  reveal();
})();
