/** Something that a person has begun with a click: while it is done nothing else is, and what goes wrong is said. */
import { useState } from "react";
import { textOf } from "../data/failure.ts";

export interface Attempt {
  error: string | undefined;
  said: string | undefined;
  setError: (text: string | undefined) => void;
  setSaid: (text: string | undefined) => void;
  run: (action: () => Promise<void>) => void;
}

/** `onBusy` hears when it begins and ends. */
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
