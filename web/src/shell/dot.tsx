/** The state of a session as a dot, with its words for those who cannot see it. */
import { type SessionRow, stateOf, WORDS } from "../data/row.ts";

const CLASS = { ask: "ask", working: "working", idle: "idle", failed: "bad", away: "", ended: "" };

export function Dot({ row }: { row: SessionRow }) {
  const state = stateOf(row);
  return (
    <>
      <span className={`dot ${CLASS[state]}`} title={WORDS[state]} aria-hidden="true" />
      <span className="hidden-label">{WORDS[state]}: </span>
    </>
  );
}
