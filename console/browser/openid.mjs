/** Sign-in by an OpenID provider, which sends the browser back to the page that it wanted. */
import { accessible, check, live, scenario } from "./page.mjs";

const [, , , , issuer] = process.argv;

await scenario(async ({ page, base, context }) => {
  const button = page.getByRole("button", { name: "Sign in with Example login" });
  await page.goto(`${base}/ui/instances?q=shop`);
  await button.waitFor();
  await accessible(page, "sign-in with a provider");
  await button.click();
  await page.waitForSelector(".shell");
  check(page.url() === `${base}/ui/instances?q=shop`, `sign-in by the provider ends at ${page.url()}`);
  await live(page);
  check((await page.getAttribute(".menu.user summary", "aria-label")) === "openid:alice", "the user has another name");
  check((await page.evaluate(() => sessionStorage.length)) === 0, "the secret of the attempt is kept");

  // The same answer of the provider in a browser that did not begin the attempt.
  await context.clearCookies();
  await page.goto(`${base}/ui/?code=stolen&state=x`);
  await page.waitForSelector("[role=alert]");
  check((await page.textContent("[role=alert]")).includes("another tab"), "a code from elsewhere is sent to the server");
  check(!page.url().includes("stolen"), "the code stays in the address");

  await page.goto(`${base}/ui/?error=access_denied&error_description=You+may+not&state=x`);
  await page.waitForSelector("[role=alert]");
  check((await page.textContent("[role=alert]")).includes("You may not"), "the provider's refusal is not shown");
}, { expected: new RegExp(`request to another host: ${issuer}/authorize`) });
