/**
 * Markdown of agents and people as elements. No HTML is made from text: marked only splits it into tokens, raw HTML and images
 * are shown as the text that they are, and links lead to http, https and mailto only.
 */
import type { Token, Tokens } from "marked";
import { Fragment, memo, type ReactNode, useMemo, useRef } from "react";
import { type Blocks, blocksOf, more } from "./blocks.ts";
import { Code } from "./code.tsx";
import { Long } from "./long.tsx";
import { visible } from "./visible.ts";

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

function decoded(text: string): string {
    return text.replace(
        /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,5}));/gi,
        (whole, decimal?: string, hex?: string, name?: string) => {
            if (name) return ENTITIES[name.toLowerCase()] ?? whole;
            const code = decimal ? Number.parseInt(decimal, 10) : Number.parseInt(hex ?? "", 16);
            return code > 0 && code <= 0x10_ffff ? String.fromCodePoint(code) : whole;
        },
    );
}

function address(href: string): string | undefined {
    try {
        const url = new URL(href);
        return SCHEMES.has(url.protocol) ? url.href : undefined;
    } catch {
        return undefined;
    }
}

function inlines(tokens: Token[] | undefined): ReactNode {
    return (tokens ?? []).map((token, at) => <Fragment key={at}>{inline(token)}</Fragment>);
}

function inline(token: Token): ReactNode {
    switch (token.type) {
        case "text":
            return "tokens" in token && token.tokens ? inlines(token.tokens) : visible(decoded((token as Tokens.Text).text));
        case "escape":
            return visible((token as Tokens.Escape).text);
        case "strong":
            return <strong>{inlines(token.tokens)}</strong>;
        case "em":
            return <em>{inlines(token.tokens)}</em>;
        case "del":
            return <del>{inlines(token.tokens)}</del>;
        case "codespan":
            return <code>{visible((token as Tokens.Codespan).text)}</code>;
        case "br":
            return <br />;
        case "checkbox":
            return null;
        case "link": {
            const href = address((token as Tokens.Link).href);
            const text = inlines(token.tokens);
            if (!href) return <>{visible(token.raw)}</>;
            return (
                <a href={href} target="_blank" rel="noreferrer noopener" title={visible(href)}>
                    {text}
                </a>
            );
        }
        default:
            // Images among them: a remote one would tell who reads.
            return visible(token.raw);
    }
}

function item(one: Tokens.ListItem, at: number): ReactNode {
    return (
        <li key={at} className={one.task ? "task" : undefined}>
            {one.task && (
                <input type="checkbox" checked={one.checked ?? false} disabled aria-label={one.checked ? "done" : "to do"} />
            )}
            {one.tokens.map((token, place) => (
                <Fragment key={place}>{block(token, !one.loose)}</Fragment>
            ))}
        </li>
    );
}

function table(token: Tokens.Table): ReactNode {
    const align = (at: number) => ({ textAlign: token.align[at] ?? ("start" as const) });
    return (
        <div className="table" tabIndex={0} role="group" aria-label="Table">
            <table>
                <thead>
                    <tr>
                        {token.header.map((cell, at) => (
                            <th key={at} style={align(at)}>
                                {inlines(cell.tokens)}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {token.rows.map((row, place) => (
                        <tr key={place}>
                            {row.map((cell, at) => (
                                <td key={at} style={align(at)}>
                                    {inlines(cell.tokens)}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function block(token: Token, tight = false): ReactNode {
    switch (token.type) {
        case "space":
        case "def":
        case "checkbox":
            return null;
        case "paragraph":
            return <p>{inlines(token.tokens)}</p>;
        case "text":
            return tight ? <>{inline(token)}</> : <p>{inline(token)}</p>;
        case "heading": {
            // Headings of a message stand below that of the page.
            const Heading = (["h2", "h3", "h4", "h5", "h6"] as const)[(token as Tokens.Heading).depth - 1] ?? "h6";
            return <Heading>{inlines(token.tokens)}</Heading>;
        }
        case "code":
            return <Code text={(token as Tokens.Code).text} language={(token as Tokens.Code).lang} />;
        case "blockquote":
            return (
                <blockquote>
                    {(token.tokens ?? []).map((one, at) => (
                        <Fragment key={at}>{block(one)}</Fragment>
                    ))}
                </blockquote>
            );
        case "list": {
            const list = token as Tokens.List;
            const items = list.items.map(item);
            return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
        }
        case "table":
            return table(token as Tokens.Table);
        case "hr":
            return <hr />;
        default:
            return <p>{visible(token.raw)}</p>;
    }
}

/** A block that is drawn again only when its text has changed, so that a selection in what was written before stays. */
const Block = memo(
    ({ token }: { token: Token }) => <>{block(token)}</>,
    (before, after) => before.token.raw === after.token.raw && before.token.type === after.token.type,
);

/** Deeper nesting is shown as text: drawing it would exhaust the stack. */
const MOST_DEEP = 40;

function isDeep(tokens: Token[], left: number): boolean {
    if (left === 0) return true;
    return tokens.some((token) => {
        const inside = [
            ...("tokens" in token ? (token.tokens ?? []) : []),
            ...("items" in token ? (token.items as Token[]) : []),
        ];
        return inside.length > 0 && isDeep(inside, left - 1);
    });
}

interface Props {
    text: string;
    /** It is being written: what was split before stays as it is. */
    isGrowing?: boolean;
}

/** A text with Markdown. */
export function Markdown({ text, isGrowing = false }: Props) {
    const before = useRef<Blocks>(undefined);
    const tokens = useMemo(() => {
        /* eslint-disable react-hooks/refs -- What was split before is taken only for a text that begins with it, whichever drawing split it. */
        const found = isGrowing ? more(text, before.current) : blocksOf(text);
        before.current = found;
        /* eslint-enable react-hooks/refs */
        return found && !isDeep(found.tokens, MOST_DEEP) ? found.tokens : undefined;
    }, [text, isGrowing]);
    if (!tokens) return <Long className="plain" text={visible(text)} label="Text" />;
    return (
        <div className="markdown">
            {tokens.map((token, at) => (
                <Block key={at} token={token} />
            ))}
        </div>
    );
}
