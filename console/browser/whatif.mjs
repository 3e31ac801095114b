/** What if: from a node of the map to the simulation of its failure, and the result played on a map. */
import { accessible, check, live, scenario, signIn } from "./page.mjs";

const NAME = "whatif1.example.com";

await scenario(async ({ page, base, folder }) => {
  await signIn(page, base, "viewer", "look");
  await live(page);
  const node = await page.evaluate(async (name) => (await (await fetch(`/2/instances/${name}`)).json()).pnode, NAME);
  await page.goto(`${base}/ui/map`);
  await page.locator(`.tile[data-node="${node}"]`).click();
  await page.getByRole("link", { name: "What if it fails?" }).click();
  await page.getByRole("button", { name: `Remove ${node}` }).waitFor();

  // A wrong time is refused with the reason, and nothing is in the list.
  await page.getByLabel("Time until they are back").fill("soon");
  await page.getByRole("button", { name: "Simulate" }).click();
  check((await page.textContent(".problem")).includes("'soon' is not a time"), "the refusal has no reason");
  await page.getByLabel("Time until they are back").fill("30m");
  await page.getByLabel("Runs").fill("2");
  await page.getByLabel("Protect all instances").check();
  check((await page.textContent("form code")).includes("--set recovery=failover"), "the command is not shown");
  await page.getByRole("button", { name: "Simulate" }).click();
  await page.waitForSelector("dl.facts");
  check(page.url().includes("run="), "the simulation is not in the address");
  check(/recovery failover.*fail-node/.test(await page.textContent("section:has(dl.facts) h3")), "the steps are not shown");
  await accessible(page, "result of a simulation");

  // At first all is as it is; in the middle the node is lost; the words follow.
  check((await page.locator(".tile.off").count()) === 0, "a node is lost before the failure");
  const slider = page.getByLabel("Time in the simulation");
  const [first, last] = await slider.evaluate((one) => [Number(one.min), Number(one.max)]);
  await slider.fill(String(first + 10));
  await page.waitForSelector(`.tile.off[title="${node}"]`);
  await page.waitForSelector(".squares .bad");
  check((await page.textContent("section:has(.replay)")).includes(node), "the words do not name the node");
  await page.screenshot({ path: `${folder}/lost.png`, fullPage: true });
  await page.getByRole("button", { name: "Play" }).click();
  await page.waitForFunction(([from, to]) => { const at = Number(document.querySelector(".replay input").value); return at > from && at <= to; }, [first + 10, last]);
  await slider.fill(String(last));
  await page.waitForFunction(() => !document.querySelector(".tile.off"));

  // The whole report is a page of its own, without scripts.
  const [report] = await Promise.all([page.waitForEvent("popup"), page.getByRole("link", { name: "Whole report" }).click()]);
  await report.waitForSelector("h1");
  check((await report.locator("svg").count()) > 0, "the report has no picture");
  await report.screenshot({ path: `${folder}/report.png`, fullPage: true });
  await report.close();
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByText("No simulation yet").waitFor();
}, { expected: /400 \(Bad Request\)/ });
