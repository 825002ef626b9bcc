/** What a person has chosen for this browser: light or dark, and the language of dates. */
import { Store } from "./store.ts";

export type Theme = "system" | "light" | "dark";

export interface Look {
  theme: Theme;
  /** As in `de` (BCP 47). Empty: that of the browser. */
  language: string;
  /** Changes of files: old and new side by side if there is room, or one below the other. */
  changes: "split" | "below";
}

const NAME = "ensemble look";
const GROUND = { light: "#fafaf9", dark: "#101013" };

function read(): Look {
  try {
    const { theme, language, changes } = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Look>;
    return {
      theme: theme === "light" || theme === "dark" ? theme : "system",
      language: isLanguage(language) ? language : "",
      changes: changes === "split" ? "split" : "below",
    };
  } catch {
    return { theme: "system", language: "", changes: "below" };
  }
}

function isLanguage(language: unknown): language is string {
  if (typeof language !== "string") return false;
  try {
    return Intl.DateTimeFormat.supportedLocalesOf(language).length > 0;
  } catch {
    return false;
  }
}

export const look = new Store<Look>(read());

/** Shows the page as it was chosen. */
export function applyLook(): void {
  const { theme } = look.get();
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  // The system's bar around the page.
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) {
    meta.content = GROUND[theme !== "system" ? theme : meta.media.includes("dark") ? "dark" : "light"];
  }
}

export function setLook(change: Partial<Look>): void {
  look.update((before) => ({ ...before, ...change }));
  try {
    localStorage.setItem(NAME, JSON.stringify(look.get()));
  } catch {
    // It lasts as long as the page.
  }
  applyLook();
}
