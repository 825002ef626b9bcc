/** An action that a person has begun with a click: it runs alone, and its error is shown. */
import { useState } from "react";
import { textOf } from "../data/failure.ts";

export interface Attempt {
  error: string | undefined;
  said: string | undefined;
  setError: (text: string | undefined) => void;
  setSaid: (text: string | undefined) => void;
  run: (action: () => Promise<void>) => void;
}

/** `onBusy` is called when it begins and ends. */
export function useAttempt(onBusy: (isBusy: boolean) => void): Attempt {
  const [error, setError] = useState<string>();
  const [said, setSaid] = useState<string>();
  const run = (action: () => Promise<void>) => {
    onBusy(true);
    setError(undefined);
    setSaid(undefined);
    action()
      .catch((caught: unknown) => setError(textOf(caught)))
      .finally(() => onBusy(false));
  };
  return { error, said, setError, setSaid, run };
}
