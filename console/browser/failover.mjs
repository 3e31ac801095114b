/** The page while the master changes: it says so, resumes by number, and shows what happened meanwhile.
 *
 * A relay stands for the cluster's address, which moves to the new master.
 */
import net from "node:net";
import { createInterface } from "node:readline";
import { check, live, scenario, signIn } from "./page.mjs";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

class Relay {
  #open = new Set();
  target = null;

  async start() {
    const server = net.createServer((client) => {
      if (!this.target) return void client.destroy();
      const server = net.connect(Number(this.target.port), this.target.hostname);
      for (const [one, other] of [[client, server], [server, client]]) {
        this.#open.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => { this.#open.delete(one); other.destroy(); });
        one.pipe(other);
      }
      return undefined;
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    server.unref();
    return `https://127.0.0.1:${server.address().port}`;
  }

  /** Lead to another server, or to none; open connections end. */
  turn(target) {
    this.target = target && new URL(target);
    for (const socket of this.#open) socket.destroy();
  }
}

const relay = new Relay();
relay.turn(process.argv[2]);
process.argv[2] = await relay.start();

await scenario(async ({ page, base }) => {
  await signIn(page, base, "admin", "secret");
  await live(page);
  await page.goto(`${base}/ui/instances`);
  await page.waitForSelector(".grid-row");
  await live(page);
  relay.turn(null);
  await page.waitForSelector(".banner.warn");
  console.log("change the master");
  const { value } = await lines.next();
  relay.turn(value);
  await page.waitForSelector(".banner.good");
  await live(page);
  await page.waitForSelector('.grid-row:has-text("meanwhile")');
  check((await page.$$(".problem")).length === 0, "the page still shows a problem");
  check((await page.$$("form")).length === 0, "the session was lost");
}, { expected: /Failed to load resource|net::ERR|status of/ });
process.exit();
