// SPDX-License-Identifier: Apache-2.0
// The pool's policy: as it holds, changed, tried, and applied. What was not tried cannot be applied.
import { attempt, question, toast } from "./dialog.js";
import { el, setAttr, setText } from "./dom.js";
import { count } from "./format.js";
import { ask, look, state } from "./state.js";

const kParts = [
  ["changes", "Changes"],
  ["waits", "Would wait then"],
  ["shrinks", "Would shrink"],
  ["ends", "Would end"],
];

export function view(main) {
  look({});
  let tried = null;
  const text = el("textarea", { rows: 28, spellcheck: false, class: "code", "aria-label": "The policy, as TOML" });
  const revision = el("span", { class: "count" });
  const dry = el("button", { type: "button", class: "main" }, "Try it");
  const apply = el("button", { type: "button", disabled: true }, "Apply");
  const result = el("div", { class: "dry-run", role: "status" }, el("p", { class: "quiet" }, "Change the text and try it. Nothing happens until you apply it."));
  setAttr(apply, "hidden", !state.me.may.rule);
  main.append(
    el("div", { class: "head-of-view" }, el("h1", {}, "Policy"), revision, el("div", { class: "actions" }, dry, apply)),
    el(
      "div",
      { class: "columns" },
      el("section", { class: "panel" }, text),
      el("section", { class: "panel" }, el("h2", {}, "What it would do"), result),
    ),
  );

  async function load() {
    try {
      const answer = await ask("policy");
      text.value = answer.policy;
      setText(revision, answer.default ? "no policy was applied" : `revision ${answer.policy_revision}`);
    } catch (error) {
      toast(error.message, true);
    }
  }
  function forget() {
    tried = null;
    setAttr(apply, "disabled", true);
  }
  text.addEventListener("input", forget);
  dry.addEventListener("click", async () => {
    forget();
    const trial = text.value;
    setAttr(dry, "disabled", true);
    try {
      const answer = await ask("policy/dry-run", { method: "POST", body: { policy: trial } });
      result.replaceChildren(
        ...kParts.flatMap(([key, title]) => [
          el("h3", {}, `${title}: ${answer[key].length === 0 ? "nothing" : count(answer[key].length, "entry", "entries")}`),
          el("ul", { class: "reasons" }, ...answer[key].slice(0, 200).map((line) => el("li", {}, line))),
        ]),
      );
      if (trial === text.value) {
        tried = trial;
        setAttr(apply, "disabled", false);
      }
    } catch (error) {
      result.replaceChildren(el("p", { class: "problem" }, error.message));
    }
    setAttr(dry, "disabled", false);
  });
  apply.addEventListener("click", async () => {
    if (tried === null || tried !== text.value) return;
    const values = await question({
      title: "Apply this policy?",
      text: "It holds at once, for all who wait and run.",
      act: "Apply",
      danger: true,
    });
    if (!values) return;
    const answer = await attempt("The policy holds.", () =>
      ask("policy", { method: "POST", body: { policy: tried } }),
    );
    if (answer) {
      forget();
      await load();
    }
  });
  load();
  return { update() {}, end() {} };
}
