/** Measure the page: bench.mjs FOLDER-OF-THE-PAGE NODES INSTANCES SECONDS. Prints its figures as JSON. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";
import { BigCluster } from "./big_cluster.mjs";
import { FLAGS } from "./page.mjs";

const [folder, nodes, instances, seconds] = process.argv.slice(2);
const EVENTS_PER_S = 50;
/** The events of an hour at 50 a second, sent as fast as the page takes them. */
const HOUR_OF_EVENTS = 180_000;
/** Fewer than the page requests row by row: more would make each batch a request for the whole table. */
const EVENTS_AT_ONCE = 350;
const KIB = 1024;
const MIB = 1024 * 1024;

/** What is loaded at the first visit: the files that index.html names. */
function bundleKib() {
  const index = readFileSync(join(folder, "index.html"), "utf8");
  const named = readdirSync(join(folder, "assets")).filter((name) => index.includes(name));
  const sizes = [gzipSync(index), ...named.map((name) => gzipSync(readFileSync(join(folder, "assets", name))))].map((one) => one.length);
  return sizes.reduce((sum, one) => sum + one, 0) / KIB;
}

const percentile = (values, part) => [...values].sort((one, other) => one - other)[Math.min(values.length - 1, Math.floor(values.length * part))];

/** Times from the navigation to the first paint, and to the first rows of the whole table, or another part of a page. */
async function loading(browser, base, path = "instances", part = ".grid-row") {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${base}/ui/${path}`, { waitUntil: "commit" });
  await page.waitForSelector(part);
  const found = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime, rows: performance.now(),
  }));
  await context.close();
  return found;
}

/** Delays between changes in the cluster and the new text on the screen, at 50 changes a second. */
async function delays(page, cluster) {
  await page.evaluate(() => {
    window.delays = [];
    const seen = new Set();
    new MutationObserver(() => {
      const now = Date.now();
      for (const cell of document.querySelectorAll('.grid-row [role="gridcell"] .text')) {
        const at = /^t(\d+)\.(\d+)$/.exec(cell.textContent)?.[0];
        if (at && !seen.has(at)) { seen.add(at); window.delays.push(now - Number(at.slice(1).split(".")[0])); }
      }
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  const shown = await page.$$eval(".grid-row a[title^='web']", (all) => all.map((one) => one.title));
  for (let count = 0; count < seconds * EVENTS_PER_S; count += 1) {
    // Every fifth change is of a visible row; the others cost the page the same work.
    const name = count % 5 ? `web${(count * 37) % instances}.example.com` : shown[count % Math.min(shown.length, 15)];
    cluster.change(name, `t${Date.now()}.${count}`);
    await new Promise((resolve) => setTimeout(resolve, 1000 / EVENTS_PER_S));
  }
  await page.waitForTimeout(500);
  return page.evaluate(() => window.delays);
}

/** Frames a second while the table scrolls through all of its rows. */
const framesPerS = (page) => page.evaluate(() => new Promise((resolve) => {
  const grid = document.querySelector(".grid");
  const begun = performance.now();
  let frames = 0;
  const step = (now) => {
    frames += 1;
    grid.scrollTop = ((now - begun) * 40) % (grid.scrollHeight - grid.clientHeight);
    if (now - begun < 3000) requestAnimationFrame(step);
    else resolve((frames * 1000) / (now - begun));
  };
  requestAnimationFrame(step);
}));

/** Frames a second of the map with all instances, while 50 of them change a second. */
async function mapFramesPerS(page, cluster) {
  await page.goto(`${cluster.base}/ui/map?zoom=instances&by=status`);
  await page.waitForSelector(".tile");
  await page.evaluate(() => {
    window.frames_ = 0;
    const step = () => { window.frames_ += 1; requestAnimationFrame(step); };
    step();
  });
  const [begun, before] = [Date.now(), await page.evaluate(() => window.frames_)];
  for (let count = 0; count < 3 * EVENTS_PER_S; count += 1) {
    const name = `web${(count * 37) % instances}.example.com`;
    cluster.byName.get(name).status = count % 2 ? "ERROR_down" : "running";
    cluster.change(name, `m${count}`);
    await new Promise((resolve) => setTimeout(resolve, 1000 / EVENTS_PER_S));
  }
  return ((await page.evaluate(() => window.frames_)) - before) * 1000 / (Date.now() - begun);
}

/** Change instances until the page has taken as many events as an hour has, with the table open. */
async function hour(page, cluster) {
  const events = Number(seconds) < 60 ? 2 * EVENTS_AT_ONCE : HOUR_OF_EVENTS;
  for (let count = 0; count < events; count += EVENTS_AT_ONCE) {
    for (let one = 0; one < EVENTS_AT_ONCE; one += 1) cluster.change(`web${((count + one) * 37) % instances}.example.com`, `h${count + one}`);
    await page.evaluate(() => new Promise((resolve) => setTimeout(resolve, 20)));
  }
  // The last change is on the screen, so the page has taken all before it.
  const shown = await page.$eval(".grid-row a[title^='web']", (one) => one.title);
  cluster.change(shown, "the-end");
  await page.waitForFunction(() => document.querySelector(".grid")?.textContent.includes("the-end"), undefined, { timeout: 120_000 });
}

async function heapMib(page) {
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.collectGarbage");
  const { metrics } = await client.send("Performance.enable").then(() => client.send("Performance.getMetrics"));
  return metrics.find((one) => one.name === "JSHeapTotalSize").value / MIB;
}

const cluster = new BigCluster(folder, Number(nodes), Number(instances));
const base = await cluster.start();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
try {
  await loading(browser, base);
  const runs = [await loading(browser, base), await loading(browser, base), await loading(browser, base)];
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  const found = await delays(page, cluster);
  const figures = {
    bundle_gzip_kib: bundleKib(),
    first_paint_ms: percentile(runs.map((one) => one.paint), 0.5),
    interactive_ms: percentile(runs.map((one) => one.rows), 0.5),
    event_to_screen_p50_ms: percentile(found, 0.5),
    event_to_screen_p99_ms: percentile(found, 0.99),
    events_seen: found.length,
    scroll_fps: await framesPerS(page),
  };
  const maps = [await loading(browser, base, "map", ".tile"), await loading(browser, base, "map", ".tile"), await loading(browser, base, "map", ".tile")];
  figures.map_interactive_ms = percentile(maps.map((one) => one.rows), 0.5);
  const map = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  figures.map_fps = await mapFramesPerS(map, cluster);
  await map.close();
  await hour(page, cluster);
  figures.memory_mib = await heapMib(page);
  console.log(JSON.stringify(Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, Math.round(value * 10) / 10]))));
} finally {
  await browser.close();
  cluster.stop();
}
