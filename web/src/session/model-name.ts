/** The usual name of a model of which only the id is known. */

const CLAUDE = /^claude-([a-z]+)-(\d+)(?:-(\d{1,2}))?(?:-\d{8})?(\[1m\])?$/;

/** As in `Opus 4.8 (1M)` for `claude-opus-4-8[1m]`. An id of another form is shown as it is. */
export function modelName(id: string): string {
  const [, family = "", major, minor, isLong] = CLAUDE.exec(id) ?? [];
  if (major === undefined) return id;
  const version = minor === undefined ? major : `${major}.${minor}`;
  return `${family.slice(0, 1).toUpperCase()}${family.slice(1)} ${version}${isLong === undefined ? "" : " (1M)"}`;
}
