/** The map: what the failure of a node would mean, and moves of an instance by the pointer and by the keyboard. */
import { accessible, check, live, scenario, signIn } from "./page.mjs";

const NAME = "web1.example.com";
const nodeOf = (page) => page.evaluate(async (name) => (await (await fetch(`/2/instances/${name}`)).json()).pnode, NAME);
const tile = (page, node) => page.locator(`.tile[data-node="${node}"]`);

/** Wait for the check of a move, and then do it. */
async function moved(page, target) {
  await page.waitForSelector("dialog[open] .badge.good");
  await accessible(page, "plan of a move");
  check((await page.textContent("dialog .plan")).includes(target.split(".")[0]), "the plan does not name the target");
  await page.locator("dialog .as-command summary").click();
  check(/gnt-instance (migrate|failover) /.test(await page.textContent("dialog")), "the command of the move is not shown");
  await page.locator("dialog footer button.primary").click();
  await page.waitForSelector("dialog", { state: "detached" });
  await page.waitForFunction(async ([name, node]) => (await (await fetch(`/2/instances/${name}`)).json()).pnode === node, [NAME, target], { polling: 500 });
}

await scenario(async ({ page, base }) => {
  await signIn(page, base, "admin", "secret");
  await live(page);
  await page.goto(`${base}/ui/map`);
  await page.waitForSelector(".tile");
  const nodes = await page.$$eval(".tile", (all) => all.map((one) => one.dataset.node));
  const first = await nodeOf(page);
  const [second, third] = nodes.filter((one) => one !== first);

  for (const colour of ["Load", "Memory", "Processors", "Status", "N+1", "Failure impact"]) {
    await page.getByRole("button", { name: colour, exact: true }).click();
    await page.waitForSelector(`.tile[data-node="${first}"]:not(.off)`);
  }
  check(page.url().includes("by=impact"), "the colour is not in the address");
  await page.getByText("Show as a table").click();
  check((await page.textContent(".groups table")).includes("start elsewhere"), "the table has no outcome");
  await accessible(page, "map as a table");
  await page.getByText("Show as a table").click();

  // Less of the picture: small squares, and then only how many nodes have each colour.
  await page.getByRole("button", { name: "Nodes", exact: true }).click();
  await page.waitForSelector(`.dot[data-node="${first}"]`);
  await accessible(page, "map of nodes");
  await page.getByRole("button", { name: "Groups", exact: true }).click();
  await page.waitForFunction(() => !document.querySelector(".tile"));
  check((await page.textContent(".group summary")).includes("3 nodes"), "a closed group does not say what it has");
  await accessible(page, "map of groups");
  await page.locator(".group summary").click();
  await page.waitForSelector(".dot");
  await page.getByRole("button", { name: "Instances", exact: true }).click();
  await page.waitForSelector(".tile .squares");

  // The pointer, and then the focus alone.
  await tile(page, first).hover();
  await page.waitForFunction((name) => new RegExp(`^${name.split(".")[0]}, .*If it fails: `).test(document.querySelector(".said")?.textContent ?? ""), first);
  await page.waitForSelector(".arriving");
  await page.mouse.move(2, 2);
  await page.waitForFunction(() => !document.querySelector(".arriving"));
  await tile(page, first).focus();
  await page.waitForSelector(".arriving");

  await page.keyboard.press("Enter");
  await page.waitForSelector("aside .draggable");
  await page.locator("aside .draggable", { hasText: "web1" }).dragTo(tile(page, second));
  await moved(page, second);

  await tile(page, second).focus();
  await page.keyboard.press("Enter");
  const choice = page.locator("aside select[aria-label*=web1]");
  await choice.focus();
  await choice.selectOption(third);
  await moved(page, third);
}, { expected: /status of 401.*session/ });
