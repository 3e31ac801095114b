/** Each role opens every page, also by addresses that others have sent: it sees no error, and nothing is refused. */
import { accessible, check, requestsOf, scenario, signIn } from "./page.mjs";

const [users, pages] = [JSON.parse(process.argv[4]), JSON.parse(process.argv[5])];
const CLOSED = "Your role does not have this page";
/** So many people open pages at the same time: a page waits most of its time for answers. */
const AT_ONCE = 3;

async function visit({ page }, base, [name, password, closed]) {
  const refused = [];
  page.on("response", (response) => {
    const isLogin = response.status() === 401 && response.url().endsWith("/2/session");
    if (response.status() >= 400 && !isLogin) refused.push(`${response.status()} ${response.request().method()} ${response.url()}`);
  });
  const answered = requestsOf(page);
  await signIn(page, base, name, password);
  const found = [];
  for (const [title, path] of pages) {
    await page.goto(`${base}/ui/${path}`);
    await page.waitForSelector(".page");
    await page.waitForFunction(() => !document.querySelector(".loading"));
    await answered();
    const problems = await page.$$eval(".problem", (all) => all.map((one) => one.textContent));
    check(problems.length === 0, `${name} sees on ${title}: ${problems}`);
    check(refused.length === 0, `${name} gets on ${title}: ${refused}`);
    if ((await page.textContent(".page")).includes(CLOSED)) found.push(title);
  }
  check(found.sort().join() === [...closed].sort().join(), `${name} may not open ${found}, and should not open ${closed}`);
  if (closed.length) await accessible(page, `pages of ${name}`);
}

await scenario(async ({ base, person }) => {
  const left = [...users];
  const works = async () => {
    while (left.length) {
      const [user, one] = [left.shift(), await person()];
      await visit(one, base, user);
      await one.context.close();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, works));
}, { expected: /status of 401.*session/ });
