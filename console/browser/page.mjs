/** What all scenarios share: a browser whose page may talk only to its own server and must not report errors. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
/** Both colours, and the rules to check in each: only these two depend on the colours. */
export const COLOURS = [["light", RULES], ["dark", ["color-contrast", "link-in-text-block"]]];
export const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];
const WAIT_MS = 60_000 * Number(process.env.CONSOLE_PATIENCE ?? 1);
/** Chromium cancels all requests when an interface of the host comes or goes, as in tests with network namespaces. */
const NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED";
const RELOAD_MS = 300;
const SHOWN_CHARACTERS = 1500;
const SIGN_INS = 5;

export function check(condition, text) {
  if (!condition) throw new Error(text);
}

/** Run a scenario with a new browser; problems of the page fail it, except those that `expected` matches. */
export async function scenario(run, { expected = /$^/, ...options } = {}) {
  const [base, folder] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  const problems = [];
  try {
    const context = await browser.newContext({ ignoreHTTPSErrors: true, ...options });
    context.setDefaultTimeout(WAIT_MS);
    const page = await context.newPage();
    watch(page, base, problems);
    await run({ page, context, base, folder, browser, watch: (other) => watch(other, base, problems) });
    const found = problems.filter((one) => !expected.test(one));
    check(found.length === 0, `the page reported:\n${found.join("\n")}`);
  } catch (error) {
    console.error(String(error?.stack ?? error));
    for (const one of problems) console.error(one);
    const pages = browser.contexts()[0]?.pages() ?? [];
    for (const page of pages) {
      console.error(`${page.url()} showed: ${await shown(page)}`);
    }
    if (pages[0] && folder) await pages[0].screenshot({ path: `${folder}/failed.png` }).catch(() => undefined);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

/** Return the text of open dialogs and of the page, and what has the focus. */
async function shown(page) {
  const parts = await page.evaluate(() => {
    const text = (one) => one?.innerText ?? "";
    const focused = document.activeElement;
    return [
      ...[...document.querySelectorAll("dialog[open]")].map(text), text(document.querySelector("main")),
      `focus: ${focused?.outerHTML.slice(0, 300)} ${focused?.value ?? ""}`,
    ];
  }).catch((error) => [String(error)]);
  return parts.map((one) => one.slice(0, SHOWN_CHARACTERS)).join("\n---\n");
}

function watch(page, base, problems) {
  repeatLoads(page);
  page.on("console", (message) => {
    const isProblem = message.type() === "error" || message.type() === "warning";
    if (isProblem && !message.text().includes(NETWORK_CHANGED)) problems.push(`${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.stack}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (/^(https?|wss?):/.test(url.protocol) && url.host !== new URL(base).host) problems.push(`request to another host: ${request.url()}`);
  });
}

/** Let a page load again until the network does not change meanwhile: nobody could use an incomplete page. */
function repeatLoads(page) {
  const load = page.goto.bind(page);
  page.goto = async (address) => {
    const end = Date.now() + WAIT_MS;
    for (;;) {
      let hasChanged = false;
      const failed = (request) => { hasChanged ||= request.failure()?.errorText === NETWORK_CHANGED; };
      page.on("requestfailed", failed);
      try {
        const answer = await load(address);
        if (!hasChanged) return answer;
        check(Date.now() < end, `the network of this host changed at each attempt to load ${address}`);
      } catch (error) {
        if (Date.now() >= end || !String(error).includes(NETWORK_CHANGED)) throw error;
      } finally {
        page.off("requestfailed", failed);
      }
      await page.waitForTimeout(RELOAD_MS);
    }
  };
}

/** Wait for any visible match: the first in the page may be in a closed part of it. */
export function visible(page, selector) {
  return page.waitForSelector(`:is(${selector}):visible`);
}

export async function signIn(page, base, name, password) {
  await page.goto(`${base}/ui/`);
  await page.fill("[name=username]", name);
  await page.fill("[name=password]", password);
  for (let turn = 1; ; turn += 1) {
    await page.click("button.primary");
    const told = await page.waitForSelector(".shell, [role=alert]");
    if (await page.$(".shell")) return;
    // The page does not send a login again by itself when the network has changed.
    check((await told.textContent()).includes("does not answer") && turn < SIGN_INS, "sign-in failed");
  }
}

export const live = (page) => page.waitForSelector(".live .badge.good");

/** Fail if the page breaks a rule of WCAG 2.2 AA that a program can check, or one of these rules. */
export async function accessible(page, where, rules = RULES) {
  // What is scrolled below the bar counts as covered.
  await page.evaluate(() => scrollTo(0, 0));
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  const found = await page.evaluate((rules) => window.axe.run(document, { runOnly: rules }), rules);
  const lines = found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
  check(lines.length === 0, `${where} is not accessible:\n${lines.join("\n")}`);
}

/** Fail if the page is wider than its window. */
export async function fits(page, where) {
  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(beyond <= 0, `${where} is ${beyond} px wider than its window`);
}
