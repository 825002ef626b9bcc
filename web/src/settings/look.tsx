/** How the page looks in this browser. */
import { Field } from "../base/field.tsx";
import { look, setLook, type Theme } from "../base/look.ts";
import { useStore } from "../base/store.ts";
import { clock } from "../base/words.ts";

const THEMES: [id: Theme, name: string][] = [
    ["system", "Same as the system"],
    ["light", "Light"],
    ["dark", "Dark"],
];
const LANGUAGES = [
    "cs",
    "da",
    "de",
    "en-GB",
    "en-US",
    "es",
    "fi",
    "fr",
    "hi",
    "it",
    "ja",
    "ko",
    "nb",
    "nl",
    "pl",
    "pt-BR",
    "sv",
    "tr",
    "uk",
    "zh-CN",
];
const EXAMPLE = "2026-03-09T16:05:00";

function nameOf(language: string): string {
    return new Intl.DisplayNames(language, { type: "language" }).of(language) ?? language;
}

export function LookSettings() {
    const { theme, language } = useStore(look);
    return (
        <section className="section" aria-labelledby="look">
            <h2 id="look">Look</h2>
            <div className="pair even">
                <label className="field">
                    <span>Theme</span>
                    <select
                        className="select"
                        value={theme}
                        onChange={(event) => setLook({ theme: event.target.value as Theme })}
                    >
                        {THEMES.map(([id, name]) => (
                            <option key={id} value={id}>
                                {name}
                            </option>
                        ))}
                    </select>
                </label>
                <Field name="Dates" hint={`Example: ${clock(EXAMPLE)}`}>
                    {(named) => (
                        <select
                            {...named}
                            className="select"
                            value={language}
                            onChange={(event) => setLook({ language: event.target.value })}
                        >
                            <option value="">Same as the browser</option>
                            {LANGUAGES.map((one) => (
                                <option key={one} value={one} lang={one}>
                                    {nameOf(one)}
                                </option>
                            ))}
                        </select>
                    )}
                </Field>
            </div>
        </section>
    );
}
