/** The address that another device shows for linking. What follows its # is a secret for ten minutes. */
let address = "";

/** Takes it out of the address of the page, where histories, other pages and onlookers could read it. */
export function takeLinkAddress(): void {
  if (location.pathname !== "/link" || location.hash === "") return;
  address = location.href;
  history.replaceState(null, "", "/link");
}

/** The address with which the page was opened; empty when it was another one. */
export const linkAddress = (): string => address;
