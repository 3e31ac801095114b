/** Every page in both colours and three widths: pictures, accessibility, and nothing beyond the window. */
import { accessible, fits, live, scenario, signIn } from "./page.mjs";

const WIDTHS = [[360, 740], [1280, 800], [2560, 1400]];
const pages = JSON.parse(process.argv[4]);

for (const colorScheme of ["light", "dark"])
  await scenario(async ({ page, base, folder }) => {
    await signIn(page, base, "admin", "secret");
    await live(page);
    for (const [name, path, ready] of pages)
      for (const [width, height] of WIDTHS) {
        await page.setViewportSize({ width, height });
        await page.goto(`${base}/ui/${path}`);
        await page.waitForSelector(ready);
        await live(page);
        const where = `${name}-${width}-${colorScheme}`;
        await accessible(page, where);
        await fits(page, where);
        await page.screenshot({ path: `${folder}/${where}.png` });
      }
  }, { colorScheme, reducedMotion: "reduce", expected: /status of 401.*session/ });
