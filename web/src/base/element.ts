/** An element with a text and what is in it, for what is shown before there is an app. */
export function element(name: string, text: string, ...children: Node[]): HTMLElement {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}
