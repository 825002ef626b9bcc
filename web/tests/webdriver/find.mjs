// What a person means by "the button Send", found in the page. This function is sent into the browser as text, so it uses nothing from
// outside of itself.

/** The elements that the steps lead to, in the order of the document.
 * A step is `{role, name}`, `{label}`, `{text}`, `{css, hasText}`, `{hasText}` or `{at}`. A pattern is `{text, isExact}` or `{source, flags}`. */
export function find(steps) {
  const ROLES = {
    alert: "[role=alert]",
    button: "button, [role=button], input[type=submit]",
    checkbox: "input[type=checkbox]",
    combobox: "select, [role=combobox]",
    dialog: "dialog, [role=dialog]",
    heading: "h1, h2, h3, h4, h5, h6",
    img: "img, [role=img]",
    link: "a[href]",
    list: "ul, ol, [role=list]",
    listitem: "li",
    log: "[role=log]",
    main: "main",
    option: "option, [role=option]",
    region: "section, [role=region]",
    status: "[role=status]",
  };
  const flat = (text) => (text ?? "").replaceAll(/\s+/g, " ").trim();
  const fits = (text, pattern) => {
    if (pattern === undefined) return true;
    if (pattern.source !== undefined) return new RegExp(pattern.source, pattern.flags).test(text);
    return pattern.isExact
      ? flat(text) === flat(pattern.text)
      : flat(text).toLowerCase().includes(flat(pattern.text).toLowerCase());
  };
  /** The text of an element as a screen reader has it. */
  const spoken = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || node.getAttribute("aria-hidden") === "true") return "";
    return (
      node.getAttribute("aria-label") ??
      (node.localName === "img" ? node.alt : [...node.childNodes].map(spoken).join(node.localName === "bdi" ? "" : " "))
    );
  };
  const nameOf = (element) => {
    const by = element
      .getAttribute("aria-labelledby")
      ?.split(/\s+/)
      .map((id) => document.getElementById(id))
      .filter(Boolean)
      .map(spoken)
      .join(" ");
    if (by) return flat(by);
    if (element.hasAttribute("aria-label")) return element.getAttribute("aria-label");
    if (element.labels?.length > 0) return flat([...element.labels].map(spoken).join(" "));
    return flat(spoken(element)) || element.title;
  };
  const below = (roots, css) =>
    [...document.querySelectorAll(css)].filter((one) => roots.some((root) => root !== one && root.contains(one)));
  const visible = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  let found = [document];
  for (const step of steps) {
    if (step.role) found = below(found, ROLES[step.role]).filter((one) => visible(one) && fits(nameOf(one), step.name));
    else if (step.label)
      found = below(found, "input, textarea, select, [aria-label], [aria-labelledby]").filter((one) =>
        fits(nameOf(one), step.label),
      );
    else if (step.text) {
      const all = below(found, "body *").filter((one) => !one.matches("script, style") && fits(one.textContent, step.text));
      found = all.filter((one) => !all.some((other) => other !== one && one.contains(other)));
    } else if (step.css) found = below(found, step.css).filter((one) => fits(one.textContent, step.hasText));
    else if (step.hasText) found = found.filter((one) => fits(one.textContent, step.hasText));
    else found = found.slice(step.at, step.at === -1 ? undefined : step.at + 1);
  }
  return found;
}

/** Waits in the page until the elements are in the state that is wanted, for at most `ms`. Gives `{found}`, or nothing. */
export function wait(steps, state, ms, done) {
  const end = performance.now() + ms;
  const shows = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const look = () => {
    const found = find(steps);
    const isThere = {
      visible: () => found.some(shows),
      attached: () => found.length > 0,
      hidden: () => !found.some(shows),
      detached: () => found.length === 0,
    }[state]();
    if (isThere) done({ found: state === "visible" ? found.filter(shows) : found });
    else if (performance.now() > end) done(null);
    else setTimeout(look, 30);
  };
  look();
}
