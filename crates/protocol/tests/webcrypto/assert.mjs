// As much of Node's `assert` as the checks use, for browsers.

const shown = (value) =>
  JSON.stringify(value, (_, member) => (ArrayBuffer.isView(member) ? Array.from(member) : member));

export function ok(value, message = "not true") {
  if (!value) throw new Error(message);
}

export function equal(actual, expected, message = "not equal") {
  if (actual !== expected) throw new Error(`${message}: ${shown(actual)} and ${shown(expected)}`);
}

export function deepEqual(actual, expected, message = "not equal") {
  equal(sorted(actual), sorted(expected), message);
}

export async function rejects(promise, message = "not rejected") {
  const is = await promise.then(() => false, () => true);
  if (!is) throw new Error(message);
}

/// As text, with the members of objects in one order.
function sorted(value) {
  const order = (_, member) => {
    if (ArrayBuffer.isView(member)) return Array.from(member);
    if (member === null || typeof member !== "object" || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member).sort(([one], [other]) => (one < other ? -1 : 1)));
  };
  return JSON.stringify(value, order);
}
