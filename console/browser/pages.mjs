/** Every page in both colours and three widths: accessibility, and nothing beyond the window. */
import { COLOURS, accessible, check, fits, live, scenario, signIn, visible } from "./page.mjs";

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
    await visible(page, ready);
    await live(page);
    for (const [width, height] of WIDTHS) {
      await page.setViewportSize({ width, height });
      await drawn(page);
      await fits(page, `${name}-${width}`);
      const isOff = await page.$eval("nav.side", (one) => one.hasAttribute("inert"));
      check(isOff === (width === WIDTHS[0][0]), `${name}-${width}: the menu is ${isOff ? "" : "not "}inert`);
      for (const [colorScheme, rules] of COLOURS) {
        await page.emulateMedia({ colorScheme });
        await drawn(page);
        await accessible(page, `${name}-${width}-${colorScheme}`, rules);
      }
    }
  }
}, { reducedMotion: "reduce", expected: /status of 401.*session/ });

/** Wait until the page has been drawn anew, also by what follows its size. */
function drawn(page) {
  return page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}
