/**
 * Says what this browser cannot do here. Over plain HTTP at any address but loopback a browser has no cryptography
 * (Secure Contexts, section 3), so there is no account that could be made, and no form to make one.
 */
import { element } from "./element.ts";

/** What is missing, in words. Empty: everything is there. */
export function missing(): string[] {
  const found: string[] = [];
  if (!window.isSecureContext) found.push("a secure connection (https)");
  else if (!("subtle" in crypto)) found.push("cryptography (WebCrypto)");
  if (!("indexedDB" in window)) found.push("a place to keep keys (IndexedDB)");
  return found;
}

/** Shows the one page that says it. */
export function explain(what: string[]): void {
  const port = location.port || "80";
  const ways = element(
    "ul",
    "",
    element(
      "li",
      "Give the server https: a reverse proxy such as Caddy with a domain, or a tunnel that brings a certificate. On its machine, ensemble phone shows the ways.",
    ),
    element(
      "li",
      "Or reach it through ssh, then open ",
      element("code", `http://127.0.0.1:${port}`),
      element("pre", `ssh -L ${port}:127.0.0.1:${port} ${location.hostname}`),
    ),
    element("li", "Or, on the computer of the server itself, open ", element("code", `http://localhost:${port}`)),
  );
  const page = element(
    "main",
    "",
    element("h1", "Ensemble cannot open here"),
    element(
      "p",
      `This page lacks ${what.join(" and ")}. What you do in Ensemble is encrypted in your browser, and browsers ` +
        "allow that only on secure connections.",
    ),
    element("p", "This address is ", element("code", location.origin)),
  );
  if (!window.isSecureContext) page.append(element("p", "Three ways out:"), ways);
  page.className = "missing";
  document.getElementById("root")?.replaceChildren(page);
}
