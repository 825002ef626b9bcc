/** The icons, drawn here: sixteen units wide, one line, in the colour of the text. */
import type { ReactNode } from "react";

const PATHS = {
    home: <path d="M2.5 7.2 8 2.6l5.5 4.6v5.6a.9.9 0 0 1-.9.9H3.4a.9.9 0 0 1-.9-.9ZM6.4 13.5V9.4h3.2v4.1" />,
    machine: <path d="M2.5 3.2h11v7.4h-11ZM5.6 13.4h4.8M8 10.6v2.8" />,
    runs: (
        <path d="M4 4.2h2.2M9.8 11.8H12M4 4.2a1.4 1.4 0 1 1-.01 0M12 11.8a1.4 1.4 0 1 0 .01 0M6.2 4.2c3.4 0 .2 7.6 3.6 7.6" />
    ),
    settings: (
        <path d="M2.5 4.6h6.2M12 4.6h1.5M2.5 11.4H4M7.3 11.4h6.2M10.4 3.1a1.5 1.5 0 1 1-.01 0M5.6 9.9a1.5 1.5 0 1 1-.01 0" />
    ),
    plus: <path d="M8 3v10M3 8h10" />,
    back: <path d="M9.8 3.2 5 8l4.8 4.8" />,
    down: <path d="M8 3v9.6M3.8 8.6 8 12.8l4.2-4.2" />,
    up: <path d="M8 13V3.2M3.8 7.4 8 3.2l4.2 4.2" />,
    chevron: <path d="m4.6 6.4 3.4 3.4 3.4-3.4" />,
    stop: <rect x="4.3" y="4.3" width="7.4" height="7.4" rx="1.3" fill="currentColor" />,
    ask: <path d="M8 1.9 14.2 13H1.8ZM8 6.2v3.2M8 11.1v.3" />,
    question: <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M6.2 6.4a1.8 1.8 0 1 1 2.6 1.7c-.6.3-.8.6-.8 1.2M8 11v.3" />,
    check: <path d="m3 8.4 3.3 3.3L13 5" />,
    cross: <path d="m4 4 8 8M12 4l-8 8" />,
    edit: <path d="M10.6 2.8 13.2 5.4 5.6 13H3v-2.6ZM9 4.4 11.6 7" />,
    read: <path d="M4 2.4h5.4L12 5v8.6H4ZM9.2 2.4v2.8H12M6 8h4M6 10.6h4" />,
    search: <path d="M7 11.4A4.4 4.4 0 1 0 7 2.6a4.4 4.4 0 0 0 0 8.8M10.2 10.2l3.2 3.2" />,
    run: <path d="m3 4.4 3.6 3.4L3 11.2M8.2 11.8H13" />,
    think: (
        <path d="M8 2.4c2.7 0 4.4 1.9 4.4 4.2 0 1.7-1 2.6-1.7 3.5-.4.5-.5.9-.5 1.5H5.800c0-.6-.1-1-.5-1.500C4.600 9.200 3.600 8.300 3.600 6.600c0-2.300 1.700-4.200 4.400-4.200M6.400 13.600h3.200" />
    ),
    fetch: (
        <path d="M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M2.200 8h11.600M8 2c-3.600 3.600-3.600 8.400 0 12 3.600-3.600 3.600-8.400 0-12" />
    ),
    tool: <path d="M9.600 4.200a2.900 2.900 0 0 1 3.700 3.700l-2-.4-.6-.6-.4-2ZM9.300 6.700 3 13" />,
    share: <path d="M8 9.600V2.600M5.200 5.200 8 2.400l2.800 2.800M4.200 7.600H3v6h10v-6h-1.200" />,
    more: <path d="M3.500 8h.01M8 8h.01M12.500 8h.01" strokeWidth="2.200" />,
    person: (
        <path d="M8 8a2.800 2.800 0 1 0 0-5.600A2.800 2.800 0 0 0 8 8M2.800 13.600c.5-2.700 2.600-4 5.200-4s4.700 1.300 5.200 4" />
    ),
    camera: (
        <path d="M2.500 5h2.700l1-1.600h3.600l1 1.600h2.700v7.800h-11ZM8 11a2.200 2.200 0 1 0 0-4.400A2.200 2.200 0 0 0 8 11" />
    ),
    voice: (
        <path d="M8 2.2a2 2 0 0 1 2 2v3.200a2 2 0 0 1-4 0V4.200a2 2 0 0 1 2-2M3.800 7.400a4.200 4.200 0 0 0 8.400 0M8 11.600v2.200" />
    ),
    image: <path d="M2.500 3.200h11v9.600h-11ZM2.800 11l3.200-3.200 2.600 2.600 1.600-1.600 3 3M10.400 6h.01" />,
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof PATHS;

/** One of them. A screen reader skips it and reads the text next to it. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
    return (
        <svg
            width={size}
            height={size}
            viewBox="0 0 16 16"
            fill="none"
            stroke="currentColor"
            strokeWidth="1.4"
            strokeLinecap="round"
            strokeLinejoin="round"
            aria-hidden="true"
            focusable="false"
        >
            {PATHS[name]}
        </svg>
    );
}
