/** Every page in both colours and three widths: accessibility, and nothing beyond the window. */
import { accessible, check, drawn, fits, legible, live, scenario, signIn } from "./page.mjs";

const WIDTHS = [[360, 740], [1280, 800], [2560, 1400]];
const pages = JSON.parse(process.argv[4]);

await scenario(async ({ page, base }) => {
  await signIn(page, base, "admin", "secret");
  await live(page);
  for (const [name, path, ready] of pages) {
    // A phone loads the page, and every other width follows as if the window were resized.
    const [[width, height]] = WIDTHS;
    await page.setViewportSize({ width, height });
    await page.goto(`${base}/ui/${path}`);
    await page.waitForSelector(ready);
    await live(page);
    for (const [width, height] of WIDTHS) {
      await page.setViewportSize({ width, height });
      await drawn(page);
      await fits(page, `${name}-${width}`);
      const isOff = await page.$eval("nav.side", (one) => one.hasAttribute("inert"));
      check(isOff === (width === WIDTHS[0][0]), `${name}-${width}: the menu is ${isOff ? "" : "not "}inert`);
      await page.emulateMedia({ colorScheme: "light" });
      await drawn(page);
      await accessible(page, `${name}-${width}`);
      await page.emulateMedia({ colorScheme: "dark" });
      await drawn(page);
      await legible(page, `${name}-${width}-dark`);
    }
  }
}, { expected: /status of 401.*session/ });
