// SPDX-License-Identifier: Apache-2.0
// Questions before something is done, and what came of it.
import { el } from "./dom.js";

/** Says something for some seconds, also to screen readers. */
export function toast(text, bad = false) {
  const note = el("p", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), bad ? 12000 : 5000);
}

/**
 * A dialog with a form. `fields`: elements with a name. Resolves to the values, or to null if the
 * user thinks again.
 */
export function question({ title, text, fields = [], act, danger = false }) {
  return new Promise((resolve) => {
    // No submit button, because Enter in a field presses the first of these.
    const cancel = el("button", { type: "button", class: "plain" }, "Cancel");
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { id: "dialog-title" }, title),
      text ? el("p", {}, text) : null,
      ...fields,
      el(
        "div",
        { class: "buttons" },
        cancel,
        el("button", { type: "submit", value: "do", class: danger ? "danger" : "main" }, act),
      ),
    );
    const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
    cancel.addEventListener("click", () => dialog.close(""));
    dialog.addEventListener("close", () => {
      const values = dialog.returnValue === "do" ? Object.fromEntries(new FormData(form)) : null;
      dialog.remove();
      resolve(values);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function field(label, input) {
  return el("label", { class: "field" }, el("span", {}, label), input);
}

/** Does it and says what came of it. */
export async function attempt(done, action) {
  try {
    const answer = await action();
    toast(done);
    return answer;
  } catch (error) {
    toast(error.message, true);
    return null;
  }
}
