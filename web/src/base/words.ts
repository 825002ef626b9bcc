/** Times, sizes and sums as people read them. */

import { look } from "./look.ts";
import { serverNow } from "./server-clock.ts";

function formats(chosen: string) {
  const language = chosen === "" ? undefined : chosen;
  return {
    time: new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" }),
    day: new Intl.DateTimeFormat(language, { month: "short", day: "numeric" }),
    dayTime: new Intl.DateTimeFormat(language, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }),
    relative: new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" }),
  };
}

let dates = formats(look.get().language);
look.subscribe(() => (dates = formats(look.get().language)));
const NUMBER = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** A time of day, with the date when it is not today. Empty for an invalid time. */
export function clock(at: string, now = new Date()): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "";
  return time.toDateString() === now.toDateString() ? dates.time.format(time) : dates.dayTime.format(time);
}

/** How long ago, as in "5 min. ago"; after a week the day. */
export function ago(at: string, now = serverNow()): string {
  const time = new Date(at).getTime();
  if (Number.isNaN(time)) return "";
  const seconds = Math.round((now - time) / 1_000);
  if (seconds < 45) return "now";
  if (seconds < 3_600) return dates.relative.format(-Math.round(seconds / 60), "minute");
  if (seconds < 86_400) return dates.relative.format(-Math.round(seconds / 3_600), "hour");
  if (seconds < 7 * 86_400) return dates.relative.format(-Math.round(seconds / 86_400), "day");
  return dates.day.format(time);
}

/** A sum in US dollars. */
export function money(usd: number): string {
  return usd > 0 && usd < 0.01 ? "<$0.01" : `$${usd.toFixed(2)}`;
}

/** A number of tokens, as in "12.3K". */
export function tokens(count: number): string {
  return NUMBER.format(count);
}

/** The last part of a path, which is the most telling. */
export function folder(path: string): string {
  return (
    path
      .replace(/[/\\]+$/, "")
      .split(/[/\\]/)
      .pop() || path
  );
}

interface Called {
  name: string | null;
  hasOtherName: boolean;
}

/** The name of a device in the signed list, or the text in its place. */
export function deviceName({ name, hasOtherName }: Called, nameless: string): string {
  return name ?? (hasOtherName ? "The server gives another name" : nameless);
}

/** The same for a machine, which has a ref. */
export function machineName({ name, hasOtherName, ref, isListed }: Called & { ref: string; isListed: boolean }): string {
  if (!isListed) return `${ref} (not in your list)`;
  return name ?? (hasOtherName ? `${ref} (the server gives another name)` : `Machine ${ref}`);
}
