// Checks a reader's answers in the page, as bookkit.exercises does in a notebook, and lets the questions of understanding be
// answered. Nothing is stored and nothing leaves the page.

(() => {
  "use strict";
  const ROUNDS = 5000;  // as in bookkit.exercises

  // A number as Python writes it: rounded to significant digits, a tie to the even one, or with 0 digits a whole number.
  function text(value, digits) {
    const sign = value < 0 || Object.is(value, -0) ? "-" : "", size = Math.abs(value);
    if (size === Infinity) return `${sign}inf`;
    if (!digits) return sign + BigInt(size);
    let [mantissa, exponent] = size.toExponential(digits - 1).split("e");
    const [exact, power] = size.toExponential(100).split("e");  // more places than a number close to a tie needs
    const figures = exact.replace(".", "");
    if (/^50*$/.test(figures.slice(digits)) && figures[digits - 1] % 2 === 0) {  // JavaScript rounds it up
      [mantissa, exponent] = [exact.slice(0, digits + 1).replace(/\.$/, ""), power];
    }
    return `${sign}${mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  }

  // The value, and for a rounded one also what differs by one in the last digit.
  function neighbours(value, digits) {
    if (!digits || !value) return [value];
    const shown = text(value, digits), rounded = Number(shown);
    const unit = Number(`1e${Number(shown.split("e")[1]) - digits + 1}`);
    return [rounded, rounded - unit, rounded + unit];
  }

  async function fingerprint(name, value, digits) {
    const bytes = (word) => new TextEncoder().encode(word);
    const key = await crypto.subtle.importKey("raw", bytes(text(value, digits)), "PBKDF2", false, ["deriveBits"]);
    const how = { name: "PBKDF2", hash: "SHA-256", salt: bytes(`attnopt ${name}`), iterations: ROUNDS };
    const hash = new Uint8Array(await crypto.subtle.deriveBits(how, key, 128));
    return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  async function right(name, value, digits, hash) {
    return (await Promise.all(neighbours(value, digits).map((near) => fingerprint(name, near, digits)))).includes(hash);
  }

  // What was typed, as { value }, or as { complaint }.
  function read(typed, digits) {
    const plain = typed.trim().replaceAll("\u2212", "-"), one = String.raw`[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?`;
    if (!plain) return { complaint: "Type a number first." };
    if (plain.includes(",")) return { complaint: "Write a point and no comma, as in 1.5." };
    const found = plain.match(`^(${one})(?:\\s*/\\s*(${one}))?$`);
    if (!found) return { complaint: "A number is wanted, such as 1.5, -2, 1e-3 or 3/4." };
    const value = Number(found[1]) / Number(found[2] ?? 1);
    if (!Number.isFinite(value)) return { complaint: "That is no finite number." };
    if (!digits && !Number.isInteger(value)) return { complaint: `A whole number is wanted, not ${value}.` };
    return { value };
  }

  window.attnoptAnswers = { text, neighbours, fingerprint, right, read };

  const made = (name, properties = {}) => Object.assign(document.createElement(name), properties);

  function ask(place, index) {
    const { name, about } = place.dataset, digits = Number(place.dataset.digits), hint = place.querySelector(".ao-hint");
    if (!globalThis.crypto?.subtle) {
      place.querySelector("p").append(" (This page cannot check it here: a browser computes what is needed only in pages that "
        + "come over https or from the reader’s own computer.)");
      return;
    }
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
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const typed = input.value, { value, complaint } = read(typed, digits);
      if (complaint) return say(complaint);
      const good = await right(name, value, digits, place.dataset.hash);
      if (input.value === typed) say(`${good ? "Right" : "Not yet"} (${wanted}).`, !good);
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
