// Random keys on platforms that do not make one each time.

/** WebKitGTK fails to make one of 190 X25519 keys (16 of 3,000 with version 2.50). */
const TRIES = 8;

/** Does something again that begins with a new random key, when it fails. A failure that has another cause comes back at once each time,
 * and is thrown in the end. */
export async function withNewKey<T>(make: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await make();
    } catch (error) {
      if (tries === TRIES) throw error;
    }
  }
}
