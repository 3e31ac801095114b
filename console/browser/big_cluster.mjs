/** A server with the answers of a large cluster, for measurements of the page alone: no daemons, made-up rows.
 *
 * The clock of a change travels in the field `os`, so that the page's delay can be read from the screen.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import http from "node:http";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const CSP = "default-src 'self'; img-src 'self' blob: data:; connect-src 'self'; style-src 'self'; script-src 'self'";
const SESSION = {
  user: "bench", rights: ["known", "read", "operate", "write"], limited: false, csrf: "c", expires: 4e9, idle_s: 1800, now: 0,
  operations: ["get_instances", "get_instances_name", "get_nodes", "get_nodes_name", "get_groups_name", "get_groups", "get_networks", "get_jobs", "put_query", "get_query_fields", "put_instances_name_startup", "post_instances_name_console_ticket"],
};

export class BigCluster {
  #streams = new Set();
  #serial = 0;

  constructor(folder, nodes, instances) {
    this.folder = folder;
    this.nodes = Array.from({ length: nodes }, (_, at) => ({
      name: `node${at}.example.com`, role: at ? "R" : "M", group: `group${at % 10}`, offline: false, drained: false, mtotal: 262144,
      mfree: 262144 - ((at * 7919) % 240000), mnode: 2048, dtotal: 4194304, dfree: 4194304 - ((at * 104729) % 4000000), ctotal: 64,
      pinst_cnt: 20, sinst_cnt: 20, tags: [`rack:${at % 40}`], maintenance: false, vm_capable: true,
    }));
    this.instances = Array.from({ length: instances }, (_, at) => ({
      name: `web${at}.example.com`, status: at % 17 ? "running" : "ADMIN_down", pnode: `node${at % nodes}.example.com`,
      snodes: [`node${(at + 1) % nodes}.example.com`], os: "image+debian-12", hypervisor: "kvm", "be/vcpus": 1 + (at % 8), "be/maxmem": 512 * (1 + (at % 16)),
      oper_ram: 512 * (1 + (at % 16)), disk_usage: 10240, disk_template: "drbd", tags: [`env:${at % 3}`], admin_state: at % 17 ? "up" : "down", "pnode.group": `group${at % 10}`,
    }));
    this.byName = new Map([...this.nodes, ...this.instances].map((row) => [row.name, row]));
  }

  async start() {
    this.server = http.createServer((request, response) => void this.#answer(request, response));
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.base = `http://127.0.0.1:${this.server.address().port}`;
    return this.base;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Change an instance now, and tell all pages. */
  change(name, os) {
    this.byName.get(name).os = os;
    this.#serial += 1;
    const data = JSON.stringify({ change: "changed", name, serial_no: this.#serial, tags: [], uuid: name });
    for (const stream of this.#streams) stream.write(`id: 1-${this.#serial}-1\nevent: instance\ndata: ${data}\n\n`);
  }

  async #answer(request, response) {
    const url = new URL(request.url, "http://x");
    if (url.pathname.startsWith("/ui/")) return this.#file(request, url.pathname.slice("/ui/".length), response);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : null;
    if (url.pathname === "/2/events") {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": welcome\n\n");
      this.#streams.add(response);
      request.on("close", () => this.#streams.delete(response));
      return undefined;
    }
    const found = url.pathname.startsWith("/2/instances/") ? undefined : this.#value(url.pathname, body);
    response.writeHead(found === undefined ? 404 : 200, { "Content-Type": "application/json" });
    return response.end(JSON.stringify(found ?? {}));
  }

  #value(path, body) {
    if (path === "/2/session") return SESSION;
    if (path === "/2/info") return { name: "bench.example.com" };
    if (path.endsWith("/fields")) return { fields: Object.keys(this.instances[0]).map((name) => ({ name, title: name, kind: typeof this.instances[0][name] === "number" ? "number" : "text", doc: name })) };
    const kind = path.slice("/2/query/".length);
    const rows = { instance: this.instances, node: this.nodes }[kind] ?? [];
    const names = (body?.qfilter?.[1] ?? []).slice(1).map((one) => one[2]);
    const chosen = names.length ? names.map((name) => this.byName.get(name)).filter(Boolean) : rows;
    return { fields: body.fields.map((name) => ({ name })), data: chosen.map((row) => body.fields.map((name) => (row[name] === undefined ? [3, null] : [0, row[name]]))) };
  }

  #file(request, path, response) {
    const asked = join(this.folder, path);
    const file = path && existsSync(asked) && statSync(asked).isFile() ? asked : join(this.folder, "index.html");
    response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream", "Content-Security-Policy": CSP, "Content-Encoding": "gzip" });
    return response.end(gzipSync(readFileSync(file)));
  }
}
