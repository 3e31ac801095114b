/** Charts of a real guest: they grow by themselves, in both colours, and as numbers. */
import { accessible, check, fits, legible, live, scenario, signIn } from "./page.mjs";

const NAME = "charts1.example.com";
const TITLES = ["Processor", "Memory"];
const LIVE_MS = 12_000;
const WIDTHS = [[360, 740], [1280, 1200]];

async function open(page, base, path) {
  await page.goto(`${base}/ui/${path}`);
  await live(page);
  await page.waitForSelector(".charts .plot canvas");
}

/** The charts as numbers, for all times; they are left at the last hour, with the numbers open. */
async function numbers(page) {
  await page.click(".charts details summary");
  await page.waitForSelector(".charts .numbers tbody tr");
  for (const range of ["Day", "Month"]) {
    await page.click(`.charts button:text("${range}")`);
    await page.waitForSelector(`.charts button[aria-pressed="true"]:text("${range}")`);
  }
  await page.click('.charts button:text("Hour")');
  await page.waitForSelector(".charts .plot canvas");
}

async function sizes(page, picture, colour) {
  for (const [width, height] of WIDTHS) {
    await page.setViewportSize({ width, height });
    await fits(page, `charts at ${width} px`);
    await picture(page, `charts-${width}-${colour}`, { fullPage: true });
  }
}

await scenario(async ({ page, base, picture }) => {
  await page.setViewportSize({ width: 1280, height: 1200 });
  await signIn(page, base, "viewer", "look");
  await open(page, base, `instances/${NAME}`);
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
  page.removeAllListeners("response");
  await numbers(page);
  await accessible(page, "charts");
  await sizes(page, picture, "light");

  await page.emulateMedia({ colorScheme: "dark" });
  await open(page, base, `instances/${NAME}`);
  await numbers(page);
  await legible(page, "charts in dark colours");
  await sizes(page, picture, "dark");
  await open(page, base, "nodes/node1.vcluster.test");
  await picture(page, "charts-node", { fullPage: true });
}, { colorScheme: "light", expected: /status of 401.*session/ });
