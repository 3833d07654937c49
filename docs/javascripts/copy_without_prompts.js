// Copies a session without its prompts and its output, so that it can be pasted at a prompt.
//
// The theme copies the attribute `data-copy` of a block, if it has one, instead of its text.
const SESSIONS = {
  pycon: { first: [">>>"], next: ["..."] },
  console: { first: ["$", "lockstep>"], next: [">"] },
};

// Returns the line without a prompt, or null if it starts with none of them.
function withoutPrompt(line, prompts) {
  const prompt = prompts.find((one) => line === one || line.startsWith(`${one} `));
  return prompt === undefined ? null : line.slice(prompt.length + 1);
}

// Returns the lines that a user types in a session.
function typedText(text, { first, next }) {
  const typed = [];
  let isInput = false;
  const endBlock = () => {
    // An indented block ends with an empty line at the prompt of Python.
    if (isInput && /^\s+\S/.test(typed.at(-1))) {
      typed.push("");
    }
  };
  for (const line of text.split("\n")) {
    const start = withoutPrompt(line, first);
    const input = start ?? (isInput ? withoutPrompt(line, next) : null);
    if (start !== null || input === null) {
      endBlock();
    }
    isInput = input !== null;
    if (isInput) {
      typed.push(input);
    }
  }
  endBlock();
  return typed.join("\n");
}

for (const [language, prompts] of Object.entries(SESSIONS)) {
  for (const block of document.querySelectorAll(`.language-${language}`)) {
    const typed = typedText(block.querySelector("code").textContent, prompts);
    if (typed !== "") {
      block.setAttribute("data-copy", typed);
    }
  }
}
