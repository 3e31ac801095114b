/** The life of an instance by hand: create, see it run, restart, migrate, use the keyboard, remove. */
import { accessible, check, live, scenario, signIn } from "./page.mjs";

const NAME = "life1.example.com";
const status = (page, text) => page.waitForSelector(`.page-head .badge:has-text("${text}")`);

async function act(page, label) {
  const main = page.locator(".page-head").getByRole("button", { name: label, exact: true });
  if (!(await main.first().isVisible())) await page.click(".page-head .menu summary");
  await main.first().click();
  await page.waitForSelector("dialog[open]");
}

/** Type a command in the console's shell until its answer appears; a guest that boots does not answer at once. */
async function typed(page, word) {
  for (let tries = 0; tries < 60; tries += 1) {
    await page.keyboard.type(`echo ${word}-$((6*7))\n`);
    await page.waitForTimeout(1000);
    const text = await page.evaluate(() => document.querySelector(".xterm-rows")?.textContent ?? "");
    if (text.includes(`${word}-42`)) return;
  }
  throw new Error(`the console does not answer: ${await page.evaluate(() => document.querySelector(".screen")?.textContent)}`);
}

/** A page that loses its first requests for a job shows the job by itself once the server answers. */
async function comesBack(context, url) {
  const page = await context.newPage();
  await page.addInitScript(() => {
    const real = window.fetch;
    let lost = 0;
    window.fetch = (...words) => (String(words[0]).includes("/2/jobs/") && (lost += 1) < 9
      ? Promise.reject(new TypeError("lost")) : real(...words));
  });
  await page.goto(url);
  await page.waitForSelector("text=The server does not answer");
  await status(page, "done");
  await page.close();
}

const confirm = (page, label) => page.locator("dialog footer").getByRole("button", { name: label, exact: true }).click();

await scenario(async ({ page, base, folder, watch }) => {
  await signIn(page, base, "admin", "secret");
  await live(page);
  await page.goto(`${base}/ui/create`);
  await page.getByRole("textbox", { name: /^Name A host/ }).fill(NAME);
  await page.getByLabel("Operating system").selectOption("tiny+default");
  await page.getByLabel("Memory (MiB)").fill("96");
  await page.getByLabel("Disk template").selectOption("sharedfile");
  await page.getByLabel("0: Size (MiB)").fill("64");
  await page.getByRole("button", { name: "Remove: interface 0" }).click();
  await page.waitForSelector(".chosen a");
  check((await page.textContent("aside")).includes("Why not the others"), "the placement is not explained");
  await page.locator(".as-command summary").click();
  check((await page.textContent(".as-command")).includes(`gnt-instance add`), "the command is not shown");
  await accessible(page, "create");
  await page.screenshot({ path: `${folder}/create.png` });
  await page.locator("form").getByRole("button", { name: "Create", exact: true }).click();
  await page.waitForURL(/\/ui\/jobs\/\d+/);
  await status(page, "done");
  await comesBack(page.context(), page.url());
  await page.goto(`${base}/ui/instances/${NAME}`);
  await status(page, "running");

  // The console, typed into, stays open in a second page while the instance migrates.
  const console_ = await page.context().newPage();
  watch(console_);
  await console_.goto(`${base}/ui/console/${NAME}`);
  await console_.waitForSelector('.page-head .badge:has-text("connected")');
  await console_.click(".screen");
  await typed(console_, "before");
  await console_.screenshot({ path: `${folder}/console.png` });

  const before = await page.textContent("dl.facts dd a");
  await act(page, "Migrate");
  await accessible(page, "confirmation");
  await confirm(page, "Migrate");
  await page.waitForFunction((old) => document.querySelector("dl.facts dd a")?.textContent !== old, before);
  await status(page, "running");
  await console_.waitForSelector('.page-head .badge:has-text("connected")');
  await typed(console_, "after");
  await accessible(console_, "console");
  await console_.close();

  await act(page, "Shut down");
  await confirm(page, "Shut down");
  await status(page, "stopped");

  // The keyboard alone: the palette, then the list.
  await page.keyboard.press("Control+k");
  check(await page.evaluate(() => Boolean(document.activeElement?.closest("dialog"))), "the palette opens too late for the next key");
  await page.keyboard.type("instances");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/ui\/instances$/);
  await page.waitForSelector(".grid-row");
  await page.keyboard.press("/");
  await page.keyboard.type(`name == ${NAME}`);
  await page.waitForFunction(() => document.querySelectorAll(".grid-row").length === 1);
  await page.keyboard.press("Escape");
  await page.focus(".grid");
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`/ui/instances/${NAME}`));

  await act(page, "Remove");
  const button = page.locator("dialog footer").getByRole("button", { name: "Remove", exact: true });
  check(await button.isDisabled(), "an instance can be removed without its name");
  await page.locator("dialog input").fill(NAME);
  await button.click();
  await page.waitForSelector(".problem");
  check((await page.textContent(".problem")).includes("does not exist"), "a removed instance is still shown");
}, { expected: /status of 401.*session|status of 404.*life1/ });
