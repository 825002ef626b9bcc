// The first script: nothing else is loaded where the browser cannot do cryptography.
import "./styles/base.css";
import { applyLook } from "./base/look.ts";
import { takeLinkAddress } from "./base/link-address.ts";
import { explain, missing } from "./base/missing.ts";
import { findServer } from "./base/server.ts";
import "./base/trusted.ts";
import { untilDone } from "./base/waiting.ts";

/** Between two tries to load the app, in milliseconds. */
const AGAIN_MS = 5_000;

applyLook();
const what = missing();
if (what.length > 0) explain(what);
else {
  takeLinkAddress();
  void begin();
}

async function begin(): Promise<void> {
  await untilDone(findServer);
  try {
    await import("./start.tsx");
  } catch {
    // Browsers do not reload a script that has failed. So the page is reloaded, once the server gives it.
    await new Promise((later) => setTimeout(later, AGAIN_MS));
    await untilDone(async () => {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(AGAIN_MS) });
      if (!answer.ok) throw new Error(`The server answers with status ${answer.status} instead of the page`);
    });
    location.reload();
  }
}
