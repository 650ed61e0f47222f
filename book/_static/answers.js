// Checks a reader's answers in the page, as attnbook.exercises does in a notebook, and lets the questions of understanding be
// answered. Nothing is stored and nothing leaves the page.

(() => {
  "use strict";
  // What was typed, as { value }, or as { complaint }.
  function read(typed, digits) {
    const plain = typed.trim().replaceAll("\u2212", "-"), one = String.raw`[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?`;
    if (!plain) return { complaint: "Type a number first." };
    if (plain.includes(",")) return { complaint: "Write a point and no comma, as in 1.5." };
    const found = plain.match(`^(${one})(?:\\s*/\\s*(${one}))?$`);
    if (!found) return { complaint: "A number is wanted, such as 1.5, -2, 1e-3 or 3/4." };
    const value = Number(found[1]) / Number(found[2] ?? 1);
    if (!Number.isFinite(value)) return { complaint: "That is not a finite number." };
    if (!digits && !Number.isInteger(value)) return { complaint: `A whole number is wanted, not ${value}.` };
    return { value };
  }

  window.attnoptAnswers = { read };

  const made = (name, properties = {}) => Object.assign(document.createElement(name), properties);

  function ask(place, index) {
    const { name, about } = place.dataset, digits = Number(place.dataset.digits), hint = place.querySelector(".ao-hint");
    const wanted = digits ? `to ${digits} digits` : "a whole number";
    const number = document.getElementById(name)?.querySelector(".caption-number")?.textContent.trim();
    const form = made("form", { autocomplete: "off" });
    // No `inputmode`: phones' keypads for decimals lack the minus sign, and some the point.
    const input = made("input", { type: "text", id: `ao-answer-${index + 1}`, autocomplete: "off", spellcheck: false });
    const label = made("label", { htmlFor: input.id }), said = made("output"), result = made("span");
    label.textContent = `Your answer${number ? ` to ${number}` : ""}${about ? `, ${about}` : ""} (${wanted})`;
    said.append(result, " ", hint ?? "");
    form.append(label, input, made("button", { textContent: "check" }), said);
    place.append(form);
    const say = (words, wrong = false) => {
      result.textContent = words;
      if (hint) hint.hidden = !wrong;
    };
    input.addEventListener("input", () => say(""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { value, complaint } = read(input.value, digits);
      if (complaint) return say(complaint);
      const good = Math.abs(value - Number(place.dataset.value)) <= Number(place.dataset.tolerance);
      say(`${good ? "Right" : "Not yet"} (${wanted}).`, !good);
    });
  }

  const TRUTHS = { true: "it is true", false: "it is false", "under a condition": "it is true under a condition" };

  function offer(question, index) {
    const statement = question.querySelector("p"), details = question.querySelector("details");
    const choices = made("div", { className: "ao-choices" }), said = made("output");
    statement.id = `ao-question-${index + 1}`;
    question.setAttribute("role", "group");
    question.setAttribute("aria-labelledby", statement.id);
    const buttons = Object.keys(TRUTHS).map((truth) => {
      const button = made("button", { type: "button", textContent: truth });
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        const { answer } = question.dataset;
        said.textContent = `${truth === answer ? "Right" : "Not so"}: ${TRUTHS[answer]}.`;
        details.open = true;
      });
      return button;
    });
    choices.append(...buttons, said);
    statement.after(choices);
    details.querySelector("summary").hidden = true;
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".ao-answer").forEach(ask);
    document.querySelectorAll(".ao-question").forEach(offer);
  });
})();
