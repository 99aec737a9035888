"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const byId = (id) => document.getElementById(id);

  // Light and dark: as the system says, until the button says otherwise. Nothing is stored.
  const theme = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // Tooltips for what the pointer is on; the same numbers are in the tables.
  const tip = byId("tip");
  document.addEventListener("pointerover", (event) => {
    const target = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !target;
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const box = target.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 8;
    tip.style.left = `${x}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // The section that is being read.
  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main > section").forEach((section) => seen.observe(section));

  // The table of kernels: one page of rows at a time, so that thousands stay quick.
  const data = JSON.parse(byId("kernel-data").textContent);
  const heads = [...document.querySelectorAll("#kernel-table th[data-key]")];
  const rows = byId("kernel-rows");
  const total = data.names.length;
  const text = {
    name: (i) => data.names[i],
    family: (i) => data.families[data.family[i]],
    view: (i) => data.views[data.view[i]],
  };
  const haystack = data.names.map((name, i) => `${name} ${text.family(i)} ${text.view(i)}`.toLowerCase());
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const state = { key: "rank", down: false, page: 0, order: data.names.map((_, i) => i) };
  const whole = (n) => n.toLocaleString("en-US");

  const cell = (key, i) => {
    if (key === "rank") return String(i + 1);
    if (text[key]) return text[key](i);
    const value = data[key][i];
    if (value === 0) return "0";
    if (key === "share") return value >= 5e-5 ? `${(100 * value).toFixed(2)} %` : "< 0.01 %";
    return Math.abs(value) >= 5e-5 ? value.toFixed(4) : value.toExponential(1);
  };

  const draw = () => {
    const pages = Math.max(1, Math.ceil(state.order.length / data.page));
    state.page = Math.min(Math.max(0, state.page), pages - 1);
    const shown = state.order.slice(state.page * data.page, (state.page + 1) * data.page);
    rows.replaceChildren(...shown.map((i) => {
      const row = document.createElement("tr");
      for (const head of heads) {
        const key = head.dataset.key;
        const item = document.createElement(key === "name" ? "th" : "td");
        if (key === "name") item.scope = "row";
        item.className = head.className;
        item.textContent = cell(key, i);
        row.append(item);
      }
      return row;
    }));
    byId("pages").textContent = `Page ${whole(state.page + 1)} of ${whole(pages)}`;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page === pages - 1;
  };

  const arrange = () => {
    const asked = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let i = 0; i < total; i += 1) if (asked.every((word) => haystack[i].includes(word))) found.push(i);
    const { key, down } = state;
    const compare = text[key]
      ? (a, b) => collator.compare(text[key](a), text[key](b))
      : key === "rank" ? (a, b) => a - b : (a, b) => data[key][a] - data[key][b];
    found.sort((a, b) => (down ? compare(b, a) : compare(a, b)) || a - b);
    state.order = found;
    state.page = 0;
    const kernels = total === 1 ? "kernel" : "kernels";
    byId("matches").textContent = asked.length
      ? `${whole(found.length)} of ${whole(total)} ${kernels} match`
      : `${whole(total)} ${kernels}`;
    draw();
  };

  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const key = head.dataset.key;
      // Numbers are most wanted from the top, names from A; a second click turns it round.
      const first = !text[key] && key !== "rank";
      state.down = state.key === key ? !state.down : first;
      state.key = key;
      for (const other of heads) {
        other.setAttribute("aria-sort", other !== head ? "none" : state.down ? "descending" : "ascending");
      }
      arrange();
    });
  }
  byId("filter").addEventListener("input", arrange);
  byId("previous").addEventListener("click", () => { state.page -= 1; draw(); });
  byId("next").addEventListener("click", () => { state.page += 1; draw(); });
  arrange();
})();
