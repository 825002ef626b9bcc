/** The address that another device shows for linking, or that of an invitation. What follows its # is a secret. */
let address = "";
let person: string | undefined;
let invite = "";

/** Takes it out of the address of the page, where histories, other pages and onlookers could read it. */
export function takeLinkAddress(): void {
  const { hash, href } = location;
  const pathname = location.pathname.replace(/\/$/, "");
  if ((pathname !== "/link" && pathname !== "/join") || hash === "") return;
  if (pathname === "/join") invite = href;
  else [, address = "", person] = /^(.+#v1\.[^.]+\.[^.]+)\.(.*)/.exec(href) ?? ["", href];
  history.replaceState(null, "", pathname);
}

/** Forgets an address that can no longer be used. */
export function forgetLinkAddress(): void {
  address = "";
  person = undefined;
}

export function forgetInviteAddress(): void {
  invite = "";
}

/** The address with which the page was opened; empty when it was another one. */
export const linkAddress = (): string => address;

/** The same for an invitation. */
export const inviteAddress = (): string => invite;

/** Whose account it is, percent-encoded, when a program of this computer has opened the page. */
export const linkPerson = (): string | undefined => person;
