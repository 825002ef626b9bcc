/** Asks for three of the recovery words, so that no one continues without having them. */
import { useState } from "react";

/** Three places of `count`, rising. */
export function placesOf(count: number): number[] {
    const all = Array.from({ length: count }, (_, at) => at);
    const chosen = Array.from(
        { length: Math.min(3, count) },
        () => all.splice(Math.floor(Math.random() * all.length), 1)[0] ?? 0,
    );
    return chosen.sort((one, other) => one - other);
}

export function areRight(words: readonly string[], places: readonly number[], typed: readonly string[]): boolean {
    return places.every((place, at) => typed[at]?.trim().toLowerCase() === words[place]);
}

export function AskedWords({ words, onRight }: { words: readonly string[]; onRight: (isRight: boolean) => void }) {
    const [places] = useState(() => placesOf(words.length));
    const [typed, setTyped] = useState<readonly string[]>(["", "", ""]);
    const write = (at: number, text: string) => {
        const next = typed.map((one, place) => (place === at ? text : one));
        setTyped(next);
        onRight(areRight(words, places, next));
    };
    return places.map((place, at) => (
        <label key={place} className="field">
            <span>Word {place + 1}</span>
            <input
                className="input"
                value={typed[at]}
                autoComplete="off"
                autoCapitalize="none"
                spellCheck={false}
                onChange={(event) => write(at, event.target.value)}
            />
        </label>
    ));
}
