/** What a machine answers to one question. It is asked again when the question changes or a person wants it: each answer costs the machine
 * work. */
import { useCallback, useEffect, useState } from "react";
import { lookWords } from "./words.ts";

export interface Seen<T> {
  value: T | undefined;
  error: string | undefined;
  isReading: boolean;
  again: () => void;
}

/** `read` is another function when the question is another one. */
export function useLook<T>(read: (signal: AbortSignal) => Promise<T>): Seen<T> {
  const [round, setRound] = useState(0);
  const [seen, setSeen] = useState<{ of: unknown; value?: T; error?: string }>();
  const [isReading, setReading] = useState(true);
  useEffect(() => {
    const stop = new AbortController();
    setReading(true);
    read(stop.signal)
      .then(
        (value) => !stop.signal.aborted && setSeen({ of: read, value }),
        (caught: unknown) => !stop.signal.aborted && setSeen({ of: read, error: lookWords(caught) }),
      )
      .finally(() => !stop.signal.aborted && setReading(false));
    return () => stop.abort();
  }, [read, round]);
  const shown = seen?.of === read ? seen : undefined;
  return {
    value: shown?.value,
    error: shown?.error,
    isReading,
    again: useCallback(() => setRound((before) => before + 1), []),
  };
}
