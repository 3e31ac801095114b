/** Images and schedules: an upload that loses its connection and is continued with the page closed, an instance from the image; a schedule. */
import { readFileSync } from "node:fs";
import { accessible, check, live, scenario, signIn } from "./page.mjs";

const UPLOADED = readFileSync(process.argv[4]);
const FILE = { name: "box.img", mimeType: "application/octet-stream", buffer: UPLOADED };

await scenario(async ({ page, base, folder, context, watch }) => {
  await signIn(page, base, "admin", "secret");
  await live(page);
  await page.goto(`${base}/ui/images`);
  await page.getByRole("button", { name: "Upload" }).click();
  const dialog = page.locator("dialog[open]");
  await dialog.getByLabel(/^File/).setInputFiles(FILE);
  check((await dialog.getByLabel(/^Name/).inputValue()) === "box", "the name is not that of the file");
  await dialog.getByLabel(/^description/).fill("of a browser");
  await accessible(page, "upload");
  await page.screenshot({ path: `${folder}/upload.png` });

  // The second piece is cut off: the page waits, says so, and continues by itself.
  let pieces = 0;
  await page.route("**/2/image-uploads/*", (route) => {
    if (route.request().method() !== "PUT") return route.continue();
    pieces += 1;
    return pieces === 2 || pieces > 3 ? route.abort("connectionreset") : route.continue();
  });
  await dialog.getByRole("button", { name: "Upload" }).click();
  const uploads = page.getByRole("region", { name: "Uploads" });
  await uploads.getByText("does not answer").waitFor();
  check(/\d+\.\d %/.test(await uploads.textContent()), "no percent");
  await accessible(page, "uploads");
  await page.screenshot({ path: `${folder}/uploading.png` });
  await uploads.getByRole("button", { name: "Pause" }).click();
  await uploads.getByText("paused").waitFor();

  // The page is closed; a new one continues with the same file.
  const next = await context.newPage();
  watch(next);
  await page.close({ runBeforeUnload: false });
  await next.goto(`${base}/ui/images`);
  const again = next.getByRole("region", { name: "Uploads" });
  await again.getByText("paused").waitFor();
  const done = next.waitForSelector("table code");
  await again.getByLabel(/^File/).setInputFiles({ ...FILE, buffer: Buffer.concat([UPLOADED, Buffer.from("x")]) });
  await again.getByText("another length").waitFor();
  // What a test chooses has a new date each time: this browser has begun with another one.
  await next.evaluate(() => { for (const key of Object.keys(localStorage)) if (key.startsWith("ganeti-upload-")) localStorage.removeItem(key); });
  await again.getByLabel(/^File/).setInputFiles(FILE);
  await done;
  await next.locator(".notice.good").waitFor();
  await next.screenshot({ path: `${folder}/images.png` });
  await next.getByRole("link", { name: "box", exact: true }).click();
  await next.getByText("raw, with holes").waitFor();
  check((await next.textContent(".page")).includes("of a browser"), "the description is missing");
  await accessible(next, "image");
  await next.screenshot({ path: `${folder}/image.png` });

  // An instance of it: the form has the image, and its command too.
  await next.getByRole("link", { name: "Create an instance" }).click();
  await next.getByRole("textbox", { name: /^Name A host/ }).fill("box1.example.com");
  await next.getByLabel("Disk template").selectOption("file");
  await next.getByLabel("Memory (MiB)").fill("96");
  await next.getByRole("button", { name: "Remove: interface 0" }).click();
  await next.getByLabel("Start after the creation").uncheck();
  await next.waitForSelector(".chosen a");
  check((await next.textContent(".as-command")).includes("--image box"), "the command has no image");
  await next.screenshot({ path: `${folder}/create-image.png` });
  await next.locator("form").getByRole("button", { name: "Create", exact: true }).click();
  await next.waitForURL(/\/ui\/jobs\/\d+/);
  await next.waitForSelector('.page-head .badge:has-text("done")');

  // A schedule of backups, and its first run.
  await next.goto(`${base}/ui/exports`);
  await next.getByRole("button", { name: "Add a schedule" }).click();
  const form = next.locator("dialog[open]");
  await form.getByLabel(/^name/).fill("nightly");
  await form.getByLabel(/^calendar/).fill("02:00");
  await form.getByLabel(/^instances/).fill("box1.example.com");
  await form.getByLabel(/^keep daily/).fill("7");
  await form.getByText("Show as command").click();
  check((await form.textContent(".as-command")).includes("gnt-backup schedule add --calendar 02:00 --instances box1.example.com --keep-daily 7 nightly"), "the command of the schedule is wrong");
  await form.getByRole("button", { name: "Create a schedule" }).click();
  const schedule = next.locator("[data-schedule=nightly]");
  await schedule.getByText("none yet").waitFor();
  await schedule.getByRole("button", { name: "Run now" }).click();
  await next.locator("dialog footer").getByRole("button", { name: "Run now" }).click();
  await schedule.locator(".badge.good").waitFor();
  await accessible(next, "schedules");
  await schedule.getByRole("button", { name: "Pause" }).click();
  await next.locator("dialog footer").getByRole("button", { name: "Pause" }).click();
  await schedule.getByText("paused").waitFor();
  await next.screenshot({ path: `${folder}/schedules.png`, fullPage: true });
  await schedule.getByRole("button", { name: "Remove", exact: true }).click();
  await next.locator("dialog footer").getByRole("button", { name: "Remove" }).click();
  await schedule.waitFor({ state: "detached" });
}, { expected: /net::ERR_CONNECTION_RESET|status of 401.*session/ });
