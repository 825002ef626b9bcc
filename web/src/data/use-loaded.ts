import { useCallback, useEffect, useRef, useState } from "react";
import { textOf } from "./failure.ts";
import { keepTrying } from "./keep-trying.ts";
import { keep, recall } from "./kept.ts";

export interface Loaded<T> {
  value: T | undefined;
  /** It is what was kept at this time, and nothing newer has come. */
  keptAt: string | undefined;
  error: string | undefined;
  reload: () => void;
}

/** The result of a call that a screen makes. A failure that may heal is retried. With a name, the last result is shown meanwhile. */
export function useLoaded<T>(load: () => Promise<T>, kept?: string): Loaded<T> {
  const [keptAt, setKeptAt] = useState<string>();
  const isThere = useRef(false);
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<string>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    if (kept !== undefined && !isThere.current) {
      void recall<T>(kept).then((found) => {
        if (!found || isThere.current || stop.signal.aborted) return;
        setValue(() => found.value);
        setKeptAt(found.at);
      });
    }
    void keepTrying(
      async () => {
        const found = await load();
        if (stop.signal.aborted) return;
        isThere.current = true;
        setKeptAt(undefined);
        if (kept !== undefined) void keep("seen", kept, found);
        setValue(() => found);
        setError(undefined);
      },
      (caught) => setError(textOf(caught)),
      stop.signal,
    );
    return () => stop.abort();
  }, [load, kept, round]);
  return { value, keptAt, error, reload: useCallback(() => setRound((before) => before + 1), []) };
}
