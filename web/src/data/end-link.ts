/** Ends the link that a program of this computer has made for a browser that has an account already. */
import { linkAddress } from "../base/link-address.ts";
import { mine } from "./account.ts";

export async function endLink(): Promise<void> {
  history.replaceState(null, "", "/");
  const id = /#v1\.([^.]+)\./.exec(linkAddress())?.[1];
  // A link of another account is none of this one's: it ends by itself.
  if (id !== undefined)
    await mine()
      .client.call("POST", "/v1/auth/links/{id}/refusal", { path: { id } })
      .catch(() => undefined);
}
