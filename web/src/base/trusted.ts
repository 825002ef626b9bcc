/**
 * The one Trusted Types policy of the page. It makes addresses of scripts and nothing else, and only of the page's files: no text
 * from outside becomes HTML or code anywhere.
 */
const OWN_SCRIPT = /^\/(?:sw\.js|assets\/[\w.-]+\.js)$/;

interface Policies {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): unknown };
}

function own(url: string): string {
  const parsed = new URL(url, location.origin);
  if (parsed.origin !== location.origin || !OWN_SCRIPT.test(parsed.pathname)) {
    throw new TypeError(`not a script of this page: ${url}`);
  }
  return parsed.href;
}

const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
const policy = policies?.createPolicy("ensemble", { createScriptURL: own });

/** The address of a script of the page, as `new Worker` and `serviceWorker.register` take it under the policy. */
export function scriptUrl(url: string): string {
  // Where the browser knows no Trusted Types it takes the text. Its type is a string for TypeScript either way.
  return (policy ? policy.createScriptURL(url) : own(url)) as string;
}
