/** Editing in place and actions for several objects: preview, effect, a change by somebody else, confirmation, results. */
import { COLOURS, accessible, check, fits, live, scenario, signIn } from "./page.mjs";

const NAME = "shop-1.example.com";
const field = (page, name) => page.locator(".edit-field").filter({ has: page.locator(`label:text-is("${name}")`) }).locator("input, select");
const submit = (page) => page.locator(".preview").getByRole("button", { name: "Apply", exact: true });
const changes = (page) => page.textContent(".changes");
const badge = (page, text) => page.waitForSelector(`.edit .lines .badge:has-text("${text}")`);

/** Send a request of another person, from a page of its own. */
const asAnother = (page, method, path, body) => page.evaluate(async ([how, where, what]) => {
  const { csrf } = await (await fetch("/2/session")).json();
  const answer = await fetch(where, { method: how, headers: { "X-Csrf-Token": csrf, ...(what ? { "Content-Type": "application/json" } : {}) }, ...(what ? { body: JSON.stringify(what) } : {}) });
  return answer.status;
}, [method, path, body]);

const SIZES = [[360, 740], [1280, 900], [2560, 1400]];

async function pictures(page, folder, name) {
  for (const [colorScheme, rules] of COLOURS) {
    await page.emulateMedia({ colorScheme });
    for (const [width, height] of SIZES) {
      await page.setViewportSize({ width, height });
      await fits(page, `${name}-${width}`);
      await accessible(page, `${name}-${width}-${colorScheme}`, rules);
      await page.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png`, fullPage: name.startsWith("edit") });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 900 });
}

await scenario(async ({ page, base, folder, context, watch }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await signIn(page, base, "admin", "secret");
  await live(page);
  await page.goto(`${base}/ui/instances/${NAME}`);
  await live(page);
  await asAnother(page, "PUT", `/2/instances/${NAME}/startup`);
  await page.waitForSelector('.page-head .badge:has-text("running")');
  await page.locator(".page-head").getByRole("button", { name: "Edit", exact: true }).click();
  await page.waitForSelector(".edit-field");

  // The value, where it comes from, its bounds; a wrong value cannot be applied.
  await field(page, "vcpus").fill("0");
  check((await changes(page)).includes("at least 1"), "a value below its bounds is accepted");
  check(await submit(page).isDisabled(), "a wrong value can be applied");
  await field(page, "vcpus").fill("2");
  await field(page, "recovery_priority").fill("70");
  await page.getByLabel("Tags").first().fill("gold, eu");
  await page.waitForSelector('.preview .badge:has-text("The check found no problem")');
  const said = await changes(page);
  check(/vcpus.*1 → 2.*at once where possible, otherwise at the next start/.test(said), `the effect is not shown: ${said}`);
  check(/recovery_priority.*50 → 70.*at once/.test(said), `the effect is not shown: ${said}`);
  check((await page.textContent(".preview")).includes("Nothing restarts"), "the restart is not explained");
  const commands = await page.locator(".preview .command code").allTextContents();
  check(commands[0] === `gnt-instance modify --backend-parameters recovery_priority=70,vcpus=2 --hotplug-if-possible ${NAME}`, `the command is ${commands}`);
  await pictures(page, folder, "edit-instance");

  // Another person changes the same value meanwhile: nothing is overwritten unseen.
  const other = await context.newPage();
  watch(other);
  await other.goto(`${base}/ui/instances/${NAME}`);
  await live(other);
  check(await asAnother(other, "PUT", `/2/instances/${NAME}/modify`, { custom_beparams: { vcpus: 3 } }) === 200, "the other change is refused");
  await page.waitForSelector(".preview [role=alert]");
  const alert = await page.textContent(".preview [role=alert]");
  check(/vcpus.*1 → 3.*You have changed the same value/.test(alert), `the other change is not explained: ${alert}`);
  check(await submit(page).isDisabled(), "the other change can be overwritten unseen");
  await page.screenshot({ path: `${folder}/edit-meanwhile.png` });
  await page.getByRole("button", { name: "Continue with the new values" }).click();
  await page.waitForFunction(() => document.querySelector(".changes")?.textContent.includes("3 → 2"));

  // A change in the same moment, which the page cannot have seen: the master refuses ours, and the page shows the new value.
  await page.waitForSelector('.preview .badge:has-text("The check found no problem")');
  const modify = `**/2/instances/${NAME}/modify`;
  let isFirst = true;
  await page.route(modify, async (route) => {
    // Checks come and go as the page learns of changes; only the change itself is overtaken.
    if (route.request().postDataJSON().dry_run || !isFirst) return route.continue();
    isFirst = false;
    check(await asAnother(other, "PUT", `/2/instances/${NAME}/modify`, { custom_beparams: { vcpus: 4 } }) === 200, "the other change is refused");
    await other.waitForFunction(async (name) => (await (await fetch(`/2/instances/${name}`)).json()).beparams.vcpus === 4, NAME, { polling: 200 });
    return route.continue();
  });
  await submit(page).click();
  await page.waitForSelector(".preview .problem");
  check((await page.textContent(".preview .problem")).includes("has changed since it was read"), "the refusal is not explained");
  await page.waitForFunction(() => /vcpus.*3 → 4/.test(document.querySelector(".preview .banner[role=alert]")?.textContent ?? ""));
  await pictures(page, folder, "edit-refused");
  await page.getByRole("button", { name: "Continue with the new values" }).click();
  await page.waitForFunction(() => document.querySelector(".changes")?.textContent.includes("4 → 2"));
  await other.close();

  await submit(page).click();
  await badge(page, "done");
  await page.waitForFunction(() => [...document.querySelectorAll(".edit .lines .badge")].every((one) => one.textContent === "done"));
  await page.screenshot({ path: `${folder}/edit-done.png` });
  await page.locator(".edit").getByRole("button", { name: "Edit again" }).click();
  await page.waitForSelector(".edit-field");
  check(await field(page, "vcpus").inputValue() === "2", "the new value is not shown");
  await page.locator(".edit-field.changed").count().then((count) => check(count === 0, "the form is not new"));

  // An own value is removed: the preview says what is effective then.
  await page.locator(".edit-field").filter({ has: page.locator('label:text-is("vcpus")') }).getByRole("button").click();
  await page.waitForFunction(() => /vcpus.*2 → 1 \(default\)/.test(document.querySelector(".changes")?.textContent ?? ""));
  // What the master refuses is said before, with its reason.
  await field(page, "maxmem").fill("1");
  await page.waitForSelector(".preview .problem");
  check((await page.textContent(".preview .problem")).includes("minmem"), "the refusal of the check is not shown");
  check(await submit(page).isDisabled(), "what the check refuses can be applied");

  for (const [path, name, value] of [["nodes/node2.vcluster.test", "ssh_port", "2222"], ["groups/default", "vcpu-ratio", "6"], ["cluster", "candidate_pool_size", "9"]]) {
    await page.goto(`${base}/ui/${path}`);
    await page.locator(".page-head").getByRole("button", { name: "Edit", exact: true }).click();
    await page.waitForSelector(".edit-field");
    await page.getByLabel("Find a setting").fill(name);
    await field(page, name).first().fill(value);
    await page.waitForSelector('.preview .badge:has-text("The check found no problem")');
    if (path === "groups/default") await pictures(page, folder, "edit-group");
    await submit(page).click();
    await badge(page, "done");
    await page.locator(".edit").getByRole("button", { name: "Edit again" }).click();
    await page.getByLabel("Find a setting").fill(name);
    check(await field(page, name).first().inputValue() === value, `${path}: ${name} was not changed`);
  }

  // Several at once, by the keyboard alone.
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  await page.focus(".grid");
  await page.keyboard.press("Control+a");
  await page.waitForSelector(".selection");
  const count = await page.locator(".grid-row.selected").count();
  check(count >= 2, `${count} rows are selected`);
  await page.locator(".selection").getByRole("button", { name: "Add tags" }).click();
  await page.waitForSelector("dialog[open]");
  check((await page.textContent("dialog h2")).includes(`${count} instances`), "the confirmation does not say how many");
  check((await page.textContent("dialog .names")).includes(NAME), "the confirmation does not say which");
  await page.locator("dialog input").fill("bulk");
  await pictures(page, folder, "bulk-confirm");
  await page.keyboard.press("Enter");
  await page.waitForFunction((all) => [...document.querySelectorAll("dialog .results .badge")].filter((one) => one.textContent === "done").length === all, count);
  await pictures(page, folder, "bulk-results");
  await page.locator("dialog").getByRole("button", { name: "Close" }).last().click();

  await page.focus(".grid");
  await page.keyboard.press("Control+a");
  await page.locator(".selection").getByRole("button", { name: "Remove", exact: true }).click();
  const remove = page.locator("dialog footer").getByRole("button", { name: "Remove", exact: true });
  check(await remove.isDisabled(), "several instances can be removed without their number");
  await page.locator("dialog input").fill(String(count));
  check(await remove.isEnabled(), "the number does not confirm");
  await page.keyboard.press("Escape");

  // A role without the right sees no control.
  await page.click(".menu.user summary");
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  for (const [user, password] of [["viewer", "look"], ["op", "secret"]]) {
    await signIn(page, base, user, password);
    for (const path of [`instances/${NAME}`, "nodes/node2.vcluster.test", "groups/default", "cluster"]) {
      await page.goto(`${base}/ui/${path}`);
      await page.waitForSelector("dl.facts");
      check(await page.getByRole("button", { name: "Edit", exact: true }).count() === 0, `${user} sees Edit on ${path}`);
    }
    await page.click(".menu.user summary");
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForSelector("[name=username]");
  }
}, { expected: /status of 401.*session|status of 40[09].*modify/ });
