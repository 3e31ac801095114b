/** Each role opens every page, also by addresses that others have sent: it sees no error, and nothing is refused. */
import { accessible, check, scenario, signIn } from "./page.mjs";

const [users, pages] = [JSON.parse(process.argv[4]), JSON.parse(process.argv[5])];
/** Time in which a page has sent its first requests, and has their answers. */
const SETTLE_MS = 400;
const CLOSED = "Your role does not have this page";

for (const [name, password, closed] of users)
  await scenario(async ({ page, base }) => {
    const refused = [];
    page.on("response", (response) => {
      const isLogin = response.status() === 401 && response.url().endsWith("/2/session");
      if (response.status() >= 400 && !isLogin) refused.push(`${response.status()} ${response.request().method()} ${response.url()}`);
    });
    await signIn(page, base, name, password);
    const found = [];
    for (const [title, path] of pages) {
      await page.goto(`${base}/ui/${path}`);
      await page.waitForSelector(".page");
      await page.waitForFunction(() => !document.querySelector(".loading"));
      await page.waitForTimeout(SETTLE_MS);
      const problems = await page.$$eval(".problem", (all) => all.map((one) => one.textContent));
      check(problems.length === 0, `${name} sees on ${title}: ${problems}`);
      check(refused.length === 0, `${name} gets on ${title}: ${refused}`);
      if ((await page.textContent(".page")).includes(CLOSED)) found.push(title);
    }
    check(found.sort().join() === [...closed].sort().join(), `${name} may not open ${found}, and should not open ${closed}`);
    if (closed.length) await accessible(page, `pages of ${name}`);
  }, { expected: /status of 401.*session/ });
