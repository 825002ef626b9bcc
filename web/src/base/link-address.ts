/** The address that another device shows for linking. What follows its # is a secret for ten minutes. */
let address = "";
let person: string | undefined;

/** Takes it out of the address of the page, where histories, other pages and onlookers could read it. */
export function takeLinkAddress(): void {
  if (location.pathname !== "/link" || location.hash === "") return;
  [, address = "", person] = /^(.+#v1\.[^.]+\.[^.]+)\.(.*)/.exec(location.href) ?? ["", location.href];
  history.replaceState(null, "", "/link");
}

/** Forgets an address that can no longer be used. */
export function forgetLinkAddress(): void {
  address = "";
  person = undefined;
}

/** The address with which the page was opened; empty when it was another one. */
export const linkAddress = (): string => address;

/** Whose account it is, percent-encoded, when a program of this computer has opened the page. */
export const linkPerson = (): string | undefined => person;
