/** What there is of a session: what is said in it, what has changed, and the files of its directory. */
import "../styles/looks.css";
import type { KeyboardEvent } from "react";
import { NAMES, type Tab } from "./words.ts";

interface Props {
    /** What the machine of the session does. */
    does: readonly string[];
    tab: Tab;
    onTab: (tab: Tab) => void;
    /** The id of the element with what a tab shows. Those of the tabs begin with it. */
    panel: string;
}

const NEEDS: Record<Tab, readonly string[]> = { chat: [], changes: ["look.git"], files: ["look.names", "look.file"] };
const ALL = Object.keys(NEEDS) as Tab[];

/** By how many tabs a key moves. */
const STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

export default function Tabs({ does, tab, onTab, panel }: Props) {
    const all = ALL.filter((one) => NEEDS[one].every((word) => does.includes(word)));
    const keyed = (event: KeyboardEvent) => {
        const ends: Record<string, number> = { Home: 0, End: all.length - 1 };
        const step = STEPS[event.key];
        const place = step === undefined ? ends[event.key] : (all.indexOf(tab) + step + all.length) % all.length;
        const next = place === undefined ? undefined : all[place];
        if (next === undefined) return;
        event.preventDefault();
        onTab(next);
        document.getElementById(`${panel}-${next}`)?.focus();
    };
    return (
        <div className="session-tabs" role="tablist" aria-label="Parts of the session" onKeyDown={keyed}>
            {all.map((one) => (
                <button
                    key={one}
                    type="button"
                    role="tab"
                    id={`${panel}-${one}`}
                    aria-selected={one === tab}
                    aria-controls={panel}
                    tabIndex={one === tab ? 0 : -1}
                    onClick={() => onTab(one)}
                >
                    {NAMES[one]}
                </button>
            ))}
        </div>
    );
}
