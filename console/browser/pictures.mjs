/** The pictures of the manual: each page of the list, as an administrator sees it. */
import { live, scenario, signIn } from "./page.mjs";

const pictures = JSON.parse(process.argv[4]);

await scenario(async ({ page, base, folder }) => {
  await page.setViewportSize({ width: 1280, height: 760 });
  await signIn(page, base, "admin", "secret");
  for (const { name, path, ready, fill } of pictures) {
    await page.goto(`${base}/ui/${path}`);
    await page.waitForSelector(ready);
    await live(page);
    if (fill) await page.getByRole("textbox", { name: new RegExp(fill.label) }).fill(fill.text);
    if (fill) await page.waitForSelector(fill.ready);
    await page.waitForLoadState("networkidle");
    await page.screenshot({ path: `${folder}/${name}.png` });
  }
}, { colorScheme: "light", reducedMotion: "reduce", expected: /status of 401.*session/ });
