/** Markup that was stored in every text that the server accepts shows as text on every page, and nothing of it runs. */
import { check, live, scenario, signIn } from "./page.mjs";

const pages = JSON.parse(process.argv[4]);
const MARK = "onerror=";

await scenario(async ({ page, base, folder }) => {
  const reports = [];
  await page.addInitScript(() => {
    window.broken = [];
    addEventListener("securitypolicyviolation", (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await signIn(page, base, "admin", "secret");
  await live(page);
  let shown = 0;
  for (const [name, path, ready, text] of pages) {
    await page.goto(`${base}/ui/${path}`);
    await page.waitForSelector(ready);
    await live(page);
    if (path.startsWith("instances/")) {
      await page.getByRole("button", { name: "Edit", exact: true }).click();
      await page.waitForSelector(".edit-field");
      await page.screenshot({ path: `${folder}/markup-edit.png`, fullPage: true });
    }
    if (text) {
      await page.waitForFunction((mark) => document.body.textContent.includes(mark) || [...document.querySelectorAll("input")].some((one) => one.value.includes(mark)), MARK);
      shown += 1;
    }
    const found = await page.evaluate(() => ({
      images: document.querySelectorAll("img[src='x'], img[onerror], b.stored, script:not([src])").length, ran: window.ran === true, broken: window.broken,
    }));
    check(found.images === 0 && !found.ran, `${name}: stored markup became elements`);
    reports.push(...found.broken.map((one) => `${name}: ${one}`));
    await page.screenshot({ path: `${folder}/markup-${name}.png` });
  }
  check(shown >= 3, "the markup is on no page");
  check(reports.length === 0, `reports of the content security policy:\n${reports.join("\n")}`);
}, { expected: /status of 401.*session/ });
