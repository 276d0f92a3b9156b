// The script of the console. It keeps the live parts of the open page current, makes "/" go
// to the search box, and suggests ids there. All content is rendered by the server: the script requests the same page
// and puts the elements with the same data-live in place of the old ones.
"use strict";
(() => {
  const body = document.body;
  const period = 1000 * Number(body.dataset.refresh || 0);

  document.addEventListener("keydown", (e) => {
    const typing = e.target.closest("input, textarea, select, [contenteditable]");
    if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      const box = document.getElementById("who");
      if (box) {
        e.preventDefault();
        box.focus();
        box.select();
      }
    } else if (e.key === "Escape" && e.target.id === "who") {
      e.target.blur();
    }
  });

  // Known ids that the text in the search box may mean. The text goes into a body, because it may be
  // an API key.
  const who = document.getElementById("who");
  let typed = 0;
  if (who) {
    who.addEventListener("input", () => {
      clearTimeout(typed);
      typed = setTimeout(async () => {
        const answer = await fetch("/suggest", { method: "POST", body: new URLSearchParams({ who: who.value }), redirect: "error" }).catch(() => null);
        const ids = answer && answer.ok ? await answer.json() : [];
        who.list.replaceChildren(...(ids || []).map((id) => new Option(id, id)));
      }, 150);
    });
  }

  const menu = document.querySelector(".side nav [aria-current]");
  if (menu) menu.scrollIntoView({ block: "nearest", inline: "nearest" });

  document.documentElement.classList.add("scripts");
  // A button copies the text of the element before it.
  document.addEventListener("click", (e) => {
    const button = e.target.closest("[data-copy]");
    if (!button) return;
    document.getSelection().selectAllChildren(button.previousElementSibling);
    if (document.execCommand("copy")) button.textContent = "Copied";
  });

  // The time of the reader's own zone, in the title of each time.
  function localTimes(root) {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime);
      if (!Number.isNaN(at.getTime())) t.title = t.title.split(" · ")[0] + " · " + at.toLocaleString() + " here";
    }
  }
  localTimes(document);

  // Times are typed in UTC.
  const here = document.querySelector("[data-here]");
  const ahead = -new Date().getTimezoneOffset();
  if (here && ahead) here.textContent = "18:00 here is " + new Date(Date.UTC(2000, 0, 1, 18) - ahead * 60000).toISOString().slice(11, 16) + " in UTC. ";
  if (!period) return;

  let paused = false;
  let busy = false;
  let timer = 0;
  let failures = 0;
  const live = document.querySelector(".live");
  const button = document.querySelector("[data-pause]");
  if (live) live.hidden = false;

  // A reader who has selected text in a part does not lose the selection.
  function selecting(part) {
    const s = document.getSelection();
    return s && !s.isCollapsed && part.contains(s.anchorNode);
  }

  // Replace one part, and keep the focus, the scrolled tables and the open details in it.
  function replace(part, fresh) {
    if (part.innerHTML === fresh.innerHTML || selecting(part)) return;
    const links = [...part.querySelectorAll("a, summary, [tabindex]")];
    const focused = links.indexOf(document.activeElement);
    const href = focused >= 0 ? links[focused].getAttribute("href") : null;
    const scrolled = [...part.querySelectorAll(".wide")].map((e) => e.scrollLeft);
    const open = [...part.querySelectorAll("details")].map((e) => e.open);
    part.replaceChildren(...[...fresh.childNodes].map((n) => document.importNode(n, true)));
    part.className = fresh.className;
    part.querySelectorAll(".wide").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    part.querySelectorAll("details").forEach((e, i) => { e.open = Boolean(open[i]); });
    if (focused >= 0) {
      const now = [...part.querySelectorAll("a, summary, [tabindex]")];
      const same = now.find((e) => href !== null && e.getAttribute("href") === href) || now[Math.min(focused, now.length - 1)];
      if (same) same.focus({ preventScroll: true });
    }
    localTimes(part);
  }

  async function refresh() {
    clearTimeout(timer);
    if (busy || paused || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!paused) {
        for (const part of document.querySelectorAll("[data-live]")) {
          const other = fresh.querySelector('[data-live="' + part.dataset.live + '"]');
          if (other) replace(part, other);
        }
      }
      failures = 0;
    } catch {
      failures++;
    }
    busy = false;
    body.classList.toggle("lost", failures > 1);
    // After failures the script asks less often.
    timer = setTimeout(refresh, period * Math.min(1 + failures, 8));
  }

  function rest() { clearTimeout(timer); }

  if (button) {
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Resume" : "Pause";
      button.setAttribute("aria-pressed", String(paused));
      body.classList.toggle("paused", paused);
      if (paused) rest(); else refresh();
    });
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) rest(); else refresh(); });
  window.addEventListener("pagehide", rest);
  timer = setTimeout(refresh, period);
})();
