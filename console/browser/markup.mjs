/** Markup that was stored in every text that the server accepts shows as text on every page, and nothing of it runs. */
import { check, live, scenario, signIn, visible } from "./page.mjs";

const pages = JSON.parse(process.argv[4]);
const MARK = "onerror=";
const STORED = "<img src=x onerror=window.ran=true><b class=stored>x</b>";
/** What a person cannot store, and what no node or guest may decide: the page needs these values as they are. */
const KEPT = new Set(["status", "admin_state", "role", "csrf", "path", "form", "fields", "kind", "operations", "rights", "parameters", "alloc_policy", "disk_template"]);

/** The answer as a node, a guest agent or a directory could make it, if every text were the attacker's. */
function poisoned(value, name = "") {
  if (typeof value === "string") return KEPT.has(name) ? value : value + STORED;
  if (Array.isArray(value)) return KEPT.has(name) ? value : value.map((one) => poisoned(one, name));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, poisoned(one, key)]));
}

/** Add the markup to every text of the answers, and take it out of the requests. */
async function poison(page) {
  await page.route(/\/2\/(?!session|events|openapi)/, async (route) => {
    const request = route.request();
    const url = decodeURIComponent(request.url()).replaceAll(STORED, "").replaceAll(STORED.replace("/", "%2F"), "");
    const body = request.postData();
    const answer = await route.fetch({ url: encodeURI(url), ...(body ? { postData: body.replaceAll(STORED, "") } : {}) }).catch(() => null);
    if (!answer) return route.abort();
    const text = await answer.text();
    const isJson = answer.ok() && (answer.headers()["content-type"] ?? "").includes("json");
    if (!isJson) return route.fulfill({ response: answer, body: text });
    const found = JSON.parse(text);
    if (!/\/2\/query\/\w+$/.test(new URL(url).pathname)) return route.fulfill({ response: answer, json: poisoned(found) });
    const names = found.fields.map((one) => one.name);
    const data = found.data.map((cells) => cells.map(([status, value], at) => [status, poisoned(value, names[at])]));
    return route.fulfill({ response: answer, json: { ...found, data } });
  });
}

/** Open all pages; `isAll`: every text of every answer has the markup. */
const visit = (isAll) => scenario(async ({ page, base, folder }) => {
  const reports = [];
  await page.addInitScript(() => {
    window.broken = [];
    addEventListener("securitypolicyviolation", (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await signIn(page, base, "admin", "secret");
  await live(page);
  if (isAll) await poison(page);
  let shown = 0;
  for (const [name, path, ready, text] of pages) {
    await page.goto(`${base}/ui/${path}`);
    await visible(page, ready);
    await live(page);
    if (isAll) await page.waitForFunction(() => !document.querySelector(".loading"));
    await page.evaluate(() => { for (const one of document.querySelectorAll("details:not(.menu)")) one.open = true; });
    if (path.startsWith("instances/")) {
      await page.getByRole("button", { name: "Edit", exact: true }).click();
      await page.waitForSelector(".edit-field");
      await page.screenshot({ path: `${folder}/markup-edit.png`, fullPage: true });
    }
    if (text || (isAll && !["overview", "create", "locks"].includes(name))) {
      await page.waitForFunction((mark) => document.body.textContent.includes(mark) || [...document.querySelectorAll("input")].some((one) => one.value.includes(mark)), MARK);
      shown += 1;
    }
    const found = await page.evaluate(() => ({
      images: document.querySelectorAll("img[src='x'], img[onerror], b.stored, script:not([src])").length, ran: window.ran === true, broken: window.broken,
    }));
    check(found.images === 0 && !found.ran, `${name}: stored markup became elements`);
    reports.push(...found.broken.map((one) => `${name}: ${one}`));
    await page.screenshot({ path: `${folder}/markup-${name}${isAll ? "-all" : ""}.png` });
  }
  check(shown >= 3, "the markup is on no page");
  check(reports.length === 0, `reports of the content security policy:\n${reports.join("\n")}`);
}, { expected: isAll ? /status of (401|404|400)/ : /status of 401.*session/ });

await visit(false);
await visit(true);
