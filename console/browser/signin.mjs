/** Sign-in, wrong passwords, sign-out, and what each role may see. */
import { accessible, check, live, scenario, signIn } from "./page.mjs";

const LOADS = 20;

const buttons = (page) => page.$$eval(".page-head button, .page-head .button", (all) => all.map((one) => one.textContent));

async function signOut(page) {
  await page.click(".menu.user summary");
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await page.waitForSelector("[name=username]");
}

await scenario(async ({ page, base, context }) => {
  // The answer about the session may come at any moment of the page's start.
  for (let turn = 0; turn < LOADS; turn += 1) {
    await page.goto(`${base}/ui/instances`);
    await page.waitForSelector("form");
  }
  await accessible(page, "sign-in");
  await page.fill("[name=username]", "admin");
  await page.fill("[name=password]", "not the password");
  await page.click("button.primary");
  await page.waitForSelector("[role=alert]");
  check((await page.textContent("[role=alert]")).includes("wrong"), "a wrong password is not reported");

  await page.fill("[name=password]", "secret");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".shell");
  check(page.url().endsWith("/ui/instances"), "sign-in loses the address");
  await live(page);
  const cookies = await context.cookies();
  const [cookie] = cookies.filter((one) => one.name === "__Host-ganeti-session");
  check(cookie?.httpOnly && cookie.secure && cookie.sameSite === "Strict", `the cookie is ${JSON.stringify(cookie)}`);
  check((await page.evaluate(() => document.cookie)) === "", "scripts can read the cookie");
  check((await buttons(page)).includes("Create"), "an administrator cannot create");

  await page.reload();
  await page.waitForSelector(".shell");
  await signOut(page);
  const status = await page.evaluate(() => fetch("/2/nodes").then((answer) => answer.status));
  check(status === 401, `after sign-out a request gets ${status}`);

  await signIn(page, base, "viewer", "look");
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  check(!(await buttons(page)).includes("Create"), "a reader sees Create");
  const menu = await page.$$eval(".side a", (all) => all.map((one) => one.textContent));
  check(menu.includes("Jobs") && !menu.includes("Audit") && !menu.includes("Users"), `a reader sees the pages ${menu}`);
  await page.click(".grid-row a");
  await page.waitForSelector("dl.facts");
  check((await buttons(page)).length === 0, "a reader sees actions");
  const refused = await page.evaluate(async () => {
    const { csrf } = await (await fetch("/2/session")).json();
    const answer = await fetch(`/2/instances/${location.pathname.split("/").at(-1)}/startup`, { method: "PUT", headers: { "X-Csrf-Token": csrf } });
    return answer.status;
  });
  check(refused === 403, `a reader's request for a change gets ${refused}`);

  await signOut(page);
  await signIn(page, base, "op", "secret");
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  check(!(await buttons(page)).includes("Create"), "an operator sees Create");
  await page.click(".grid-row a");
  await page.waitForSelector("dl.facts");
  check((await buttons(page)).some((one) => one === "Start" || one === "Shut down"), "an operator sees no actions");
  check(!(await buttons(page)).includes("Remove"), "an operator sees Remove");

  await signOut(page);
  await signIn(page, base, "shop", "secret");
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  const names = await page.$$eval(".grid-row a[title$='.example.com']", (all) => all.map((one) => one.title));
  check(names.length > 0 && names.every((name) => name.startsWith("shop-")), `a limited user sees ${names}`);
}, { expected: /status of 401.*\/2\/(session|nodes)$|status of 403.*startup/ });
