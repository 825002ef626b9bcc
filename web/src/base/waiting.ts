/** What is shown while the app cannot start because its server gives no usable answer: what happened, and what to do. */
import { element } from "./element.ts";

/** Most begin at once: a wait is shown after this many milliseconds. */
const QUIET_MS = 2_000;
/** Between two tries. */
const PAUSE_MS = 2_000;

/** Repeats it until it succeeds. Meanwhile the page shows the reason. */
export async function untilDone<T>(run: () => Promise<T>): Promise<T> {
  let why = "The server does not answer.";
  let isShown = false;
  const show = (): void => {
    isShown = true;
    const said = element(
      "div",
      "",
      element("p", why),
      element("p", "The page keeps trying. If this lasts, check that this device is online and that the server is running."),
    );
    said.setAttribute("role", "status");
    const page = element("main", "", element("h1", "Ensemble cannot start yet"), said);
    page.className = "missing";
    document.getElementById("root")?.replaceChildren(page);
  };
  const timer = setTimeout(show, QUIET_MS);
  try {
    for (;;) {
      try {
        return await run();
      } catch (error) {
        why = error instanceof Error && error.message !== "" ? `${error.message}.` : why;
        if (isShown) show();
        await new Promise((later) => setTimeout(later, PAUSE_MS));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
