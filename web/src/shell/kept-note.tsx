/** Says that what is shown was kept: since when, and that newer things are missing. */
import { clock } from "../base/words.ts";

export function KeptNote({ at }: { at: string }) {
  return <p className="kept-note" role="status">As it was at {clock(at)}. What came since is not here yet.</p>;
}
