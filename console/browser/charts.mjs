/** Charts of a real guest: they grow by themselves, in both colours, and as numbers. */
import { accessible, check, fits, live, scenario, signIn } from "./page.mjs";

const NAME = "charts1.example.com";
const TITLES = ["Processor", "Memory"];
const LIVE_MS = 12_000;

for (const colorScheme of ["light", "dark"])
  await scenario(async ({ page, base, folder }) => {
    await page.setViewportSize({ width: 1280, height: 1200 });
    await signIn(page, base, "viewer", "look");
    await page.goto(`${base}/ui/instances/${NAME}`);
    await live(page);
    await page.waitForSelector(".charts .plot canvas");
    const shown = await page.$$eval(".charts figcaption strong", (all) => all.map((one) => one.textContent));
    check(TITLES.every((one) => shown.includes(one)), `the charts are ${shown.join(", ")}`);
    const asked = [];
    const ends = new Set();
    page.on("request", (request) => asked.push(new URL(request.url()).pathname));
    page.on("response", async (response) => {
      if (response.url().includes("/history")) ends.add((await response.json()).times.at(-1));
    });
    await page.waitForTimeout(LIVE_MS);
    check(ends.size >= 2, `the charts do not grow: ${[...ends]}`);
    const lists = asked.filter((path) => !path.endsWith("/history") && path !== "/2/events");
    check(asked.filter((path) => path.endsWith("/history")).length <= 4, `too many requests: ${asked.join(" ")}`);
    check(lists.length === 0, `the charts requested ${lists.join(" ")}`);
    await page.click(".charts details summary");
    await page.waitForSelector(".charts .numbers tbody tr");
    for (const range of ["Day", "Month"]) {
      await page.click(`.charts button:text("${range}")`);
      await page.waitForSelector(`.charts button[aria-pressed="true"]:text("${range}")`);
    }
    await page.click('.charts button:text("Hour")');
    await page.waitForSelector(".charts .plot canvas");
    await accessible(page, `charts-${colorScheme}`);
    for (const [width, height] of [[360, 740], [1280, 1200]]) {
      await page.setViewportSize({ width, height });
      await fits(page, `charts at ${width} px`);
      await page.screenshot({ path: `${folder}/charts-${width}-${colorScheme}.png`, fullPage: true });
    }
    await page.goto(`${base}/ui/nodes/node1.vcluster.test`);
    await page.waitForSelector(".charts .plot canvas");
    await page.screenshot({ path: `${folder}/charts-node-${colorScheme}.png`, fullPage: true });
  }, { colorScheme, expected: /status of 401.*session/ });
