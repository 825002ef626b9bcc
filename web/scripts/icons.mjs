// Draws the icons of the installed app from public/icon.svg: `npm run icons`. A maskable one has no corners of its own, and its drawing in
// the middle four fifths, because systems cut it to a shape of theirs.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { launch } from "../tests/browser.mjs";

const folder = join(import.meta.dirname, "../public");
const drawn = await readFile(join(folder, "icon.svg"), "utf8");
const wide = drawn
  .replace('viewBox="0 0 32 32"', 'viewBox="-2 -2 36 36"')
  .replace('<rect width="32" height="32" rx="8"', '<rect x="-2" y="-2" width="36" height="36"');
const browser = await launch();
for (const [name, size, svg] of [
  ["icon-192", 192, drawn],
  ["icon-512", 512, drawn],
  ["icon-maskable-512", 512, wide],
  ["apple-touch-icon", 180, wide],
]) {
  const page = await browser.newPage({ viewport: { width: size, height: size } });
  await page.setContent(`<style>*{margin:0}svg{display:block;width:${size}px;height:${size}px}</style>${svg}`);
  await page.screenshot({ path: join(folder, `${name}.png`), omitBackground: true });
  await page.close();
}
await browser.close();
