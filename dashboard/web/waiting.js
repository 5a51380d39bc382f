// SPDX-License-Identifier: Apache-2.0
// The queue as a view of its own, and one request of it in full. Whoever may, holds it or takes it
// out.
import { attempt, field, question } from "./dialog.js";
import { el, facts, setAttr, setText } from "./dom.js";
import { makeQueue, requestFacts, updateQueue } from "./queue.js";
import { ask, look, state } from "./state.js";

export function view(main, words) {
  look({ queue: true });
  if (words[0]) return one(main, Number(words[0]));
  const queue = makeQueue();
  queue.classList.add("alone");
  main.append(el("h1", { class: "unseen" }, "Queue"), queue);
  return { update: () => updateQueue(queue), end() {} };
}

function one(main, id) {
  const gone = el("p", { class: "empty" });
  const place = el("div");
  const withdraw = el("button", { type: "button", class: "danger", hidden: true }, "Take out of the queue");
  withdraw.addEventListener("click", async () => {
    const values = await question({
      title: `Take request ${id} out of the queue?`,
      text: "Its program is told, and asks again only if its user starts it again.",
      fields: [field("Why", el("input", { name: "why", maxlength: 200 }))],
      act: "Take out",
      danger: true,
    });
    if (!values) return;
    await attempt(`Request ${id} does not wait any more.`, () =>
      ask(`leases/${id}/release`, { method: "POST", body: { why: values.why } }),
    );
  });
  const hold = el("button", { type: "button", hidden: true, onclick: () => holdOrNot() }, "Hold");
  async function holdOrNot() {
    if (hold.textContent === "Let it start") {
      await attempt(`Request ${id} may start.`, () => ask(`leases/${id}/unhold`, { method: "POST", body: {} }));
      return;
    }
    const values = await question({
      title: `Hold request ${id}?`,
      text: "Nothing starts for it until it is let go. It keeps the time that it has waited.",
      fields: [field("Why", el("input", { name: "why", maxlength: 200 }))],
      act: "Hold",
    });
    if (!values) return;
    await attempt(`Request ${id} is held.`, () =>
      ask(`leases/${id}/hold`, { method: "POST", body: { why: values.why } }),
    );
  }
  main.append(
    el(
      "div",
      { class: "head-of-view" },
      el("h1", {}, `Request ${id}`),
      el("div", { class: "actions" }, hold, withdraw),
    ),
    gone,
    el("section", { class: "panel" }, place),
  );
  return {
    update() {
      const request = state.queue.get(id);
      setAttr(place.parentElement, "hidden", !request);
      setText(gone, request ? "" : "It does not wait, or is not near the front of the queue.");
      const mine = request && request.owner !== "" && request.owner === state.me.name;
      const rules = request && (state.me.may.manage || (state.me.may.hold && mine));
      for (const button of [hold, withdraw]) setAttr(button, "hidden", !rules);
      if (request) setText(hold, request.held ? "Let it start" : "Hold");
      if (request) place.replaceChildren(facts([["Who", request.owner], ...requestFacts(request)]));
    },
    end() {},
  };
}
