import { useCallback, useEffect, useState } from "react";
import { textOf } from "./failure.ts";

export interface Loaded<T> {
  value: T | undefined;
  error: string | undefined;
  reload: () => void;
}

/** What a call gives, once a screen is there. */
export function useLoaded<T>(load: () => Promise<T>): Loaded<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<string>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    let isGone = false;
    load().then(
      (found) => {
        if (isGone) return;
        setValue(() => found);
        setError(undefined);
      },
      (caught: unknown) => {
        if (!isGone) setError(textOf(caught));
      },
    );
    return () => {
      isGone = true;
    };
  }, [load, round]);
  return { value, error, reload: useCallback(() => setRound((before) => before + 1), []) };
}
