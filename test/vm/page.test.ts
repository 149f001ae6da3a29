/**
 * `podnet ui` in Debian's Chromium, on a podnetd with real pods. PODNET_SCREENSHOTS=DIRECTORY keeps
 * pictures of the page: those of the documents are made this way.
 */
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import ava, { type TestFn } from "ava";
import { type Browser, chromium, type Page } from "playwright-core";
import type { Podnet } from "../../api/client.ts";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import {
  PodService,
  WatchPodsResponse_Kind as Kind,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { servePage } from "../../ui/server/serve-page.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { until } from "../lab/until.ts";
import { joinRig, type Rig } from "./daemon-rig.ts";

const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-background-networking",
];

const test = ava.serial as TestFn;
const top = path.resolve(import.meta.dirname, "../..");
const directory = mkdtempSync(path.join(tmpdir(), "podnet-page-"));
const pictures = process.env["PODNET_SCREENSHOTS"] ?? path.join(directory, "pictures");

const held = new AsyncDisposableStack();
let rig: Rig;
let browser: Browser;
let page: Page;
const requested: string[] = [];
const complaints: string[] = [];

/** Starts `podnet ui` on the rig's host; resolves to the address that it prints. */
async function startUi(...words: string[]): Promise<string> {
  const argv = [
    path.join(top, "bin/podnet"),
    "ui",
    "--socket",
    rig.daemon.socket,
    ...words,
  ] as const;
  const program = rig.lab.host.spawn([...argv] as [string, ...string[]], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  held.defer(() => void program.kill("SIGTERM"));
  let said = "";
  program.stdout?.on("data", (data: Buffer) => {
    said += data.toString();
  });
  await until("the page's address", () => said.includes("\n"));
  return /The page: (\S+)/.exec(said)?.[1] ?? said;
}

/** A request to the page's server by curl, on the rig's host: its status and text. */
async function curl(url: string, ...words: string[]): Promise<{ status: number; text: string }> {
  const said = await rig.lab.host.run("curl", "-s", "-w", "\n%{http_code}", ...words, url);
  const end = said.lastIndexOf("\n");
  return { status: Number(said.slice(end + 1)), text: said.slice(0, end) };
}

let opened: string;
test.before(async (t) => {
  t.timeout(120_000);
  t.not(findProgram("chromium"), undefined, "Chromium is needed: scripts/setup --browser");
  mkdirSync(pictures, { recursive: true });
  rig = held.use(await joinRig());
  const { pods } = rig.client;
  await pods.create({
    spec: { name: "web", labels: { app: "shop" }, ports: [{ hostPort: 8080, podPort: 80 }] },
  });
  await pods.create({ spec: { name: "db", interfaces: [{ address: "192.168.123.40" }] } });
  opened = await startUi();
  // The browser is started in the network of the rig's host, where 127.0.0.1 is the host's own.
  const wrapper = path.join(directory, "chromium");
  const inside = `exec ip netns exec ${rig.lab.host.name} chromium "$@"`;
  writeFileSync(wrapper, `#!/bin/sh\n${inside}\n`, { mode: 0o755 });
  browser = await chromium.launch({
    executablePath: wrapper,
    args: flags,
  });
  held.defer(() => browser.close());
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 } });
  page = await context.newPage();
  page.on("request", (request) => requested.push(request.url()));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
});
test.after.always("everything is given up", async () => {
  await held.disposeAsync();
  rmSync(directory, { recursive: true, force: true });
});

/** A picture of the window, without the part below all that is in it. */
const picture = async (name: string): Promise<void> => {
  const { width = 0, height: most = 0 } = page.viewportSize() ?? {};
  const bottom = await page.evaluate<number>(
    `Math.max(...[...document.querySelectorAll(".columns *")].map((each) => each.getBoundingClientRect().bottom))`,
  );
  const height = Math.min(most, Math.ceil(bottom) + 18);
  await page.screenshot({
    path: path.join(pictures, `${name}.png`),
    clip: { x: 0, y: 0, width, height },
  });
};

test("only the Host of the page is answered, and only who has its token or cookie", async (t) => {
  const { origin, port } = new URL(opened);
  const list = "/podnet.v1.NetworkService/List";
  const post = ["-d", "{}"];
  t.is((await curl(`${origin}/`)).status, 403);
  t.is((await curl(`${origin}/?token=wrong`)).status, 403);
  t.is((await curl(`${origin}${list}`, ...post)).status, 403);
  t.is((await curl(opened, "-H", `Host: attacker.example:${port}`)).status, 403);
  t.is((await curl(opened, "-H", "Host: 127.0.0.1")).status, 403, "the port belongs to it");
});

test("the page shows networks and pods", async (t) => {
  await page.goto(opened);
  await page.getByRole("button", { name: /^web, running/ }).waitFor();
  t.is(new URL(page.url()).search, "", "the token is out of the address");
  const network = page.getByRole("region", { name: "Network default" });
  t.regex((await network.textContent()) ?? "", /hyper0 · 192\.168\.123\.0\/24/);
  t.is(await network.getByRole("button").count(), 2);
  t.regex(
    (await page.getByRole("region", { name: "Published ports" }).textContent()) ?? "",
    /127\.0\.0\.1:8080 → web:80/,
  );
  await until("rates", async () => /↓ \d/.test((await network.textContent()) ?? ""));
  await picture("network");
});

test("the address of the page opens it once", async (t) => {
  t.is((await curl(opened)).status, 403);
  const other = await browser.newContext();
  const second = await other.newPage();
  const answer = await second.goto(opened);
  t.is(answer?.status(), 403);
  await other.close();
});

test("a request of another site is refused, also with the cookie", async (t) => {
  const place = page.url();
  const [cookie] = await page.context().cookies(place);
  t.like(cookie, { httpOnly: true, sameSite: "Strict", path: new URL(place).pathname });
  const own = ["-H", `Cookie: ${cookie?.name}=${cookie?.value}`, "-d", "{}"];
  const list = `${place}podnet.v1.NetworkService/List`;
  t.is((await curl(list, ...own)).status, 200);
  t.is((await curl(`${new URL(place).origin}/podnet.v1.NetworkService/List`, ...own)).status, 404);
  // A page of another port of this address, which browsers take for the same site.
  t.is((await curl(list, ...own, "-H", "Sec-Fetch-Site: same-site")).status, 403);
  t.is((await curl(list, ...own, "-H", "Origin: http://127.0.0.1:8080")).status, 403);
  t.is((await curl(list, ...own, "-H", "Origin: null")).status, 403);
  t.is((await curl(list, ...own, "-H", "Origin: http://attacker.example")).status, 403);
  t.is((await curl(list, ...own, "-H", "Sec-Fetch-Site: cross-site")).status, 403);
  const stop = await curl(`${place}podnet.v1.PodService/Stop`, ...own);
  t.is(stop.status, 403);
  t.regex(stop.text, /--allow-changes/);
  for (const unused of ["NodeService/Down", "PodService/Delete", "PodService/List"])
    t.is((await curl(`${place}podnet.v1.${unused}`, ...own)).status, 404, unused);
  t.is((await curl(list, ...own, "-d", "x".repeat(70_000))).status, 400);
});

test("a server at another port of this address gets neither cookie nor path", async (t) => {
  const heard: string[] = [];
  // (It runs in the network of the rig's host, as what pods publish there does.)
  const program = `require("node:http").createServer((request, response) => {
    console.log(JSON.stringify(request.headers) + request.url); response.end("<p>other</p>");
  }).listen(8999, "127.0.0.1", () => console.log("up"))`;
  const other = rig.lab.host.spawn([process.execPath, "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  held.defer(() => void other.kill("SIGKILL"));
  other.stdout?.on("data", (data: Buffer) => heard.push(data.toString()));
  await until("the other server", () => heard.join("").includes("up"));
  const tab = await page.context().newPage();
  await tab.goto("http://127.0.0.1:8999/");
  t.regex(heard.join(""), /"user-agent"/);
  t.notRegex(heard.join(""), /podnet-page|"cookie"|"referer"/i);
  // Nor does it get an answer of the page's server, though it knows the path.
  const asked = await tab.evaluate<string>(
    `fetch(${JSON.stringify(page.url())}, { credentials: "include" }).then((r) => r.text(), String)`,
  );
  t.regex(asked, /TypeError/);
  await tab.close();
});

test("a chosen pod shows its interfaces, its waterfall and its console", async (t) => {
  await page.getByRole("button", { name: /^web, running/ }).click();
  const details = page.getByRole("complementary", { name: "Pod web" });
  await details.waitFor();
  t.regex((await details.textContent()) ?? "", /shop.*eth0.*192\.168\.123\.\d+\/24/s);
  const steps = await details.getByRole("img").getAttribute("aria-label");
  t.regex(steps ?? "", /guest\.configure \d/);
  await details.getByRole("button", { name: "Show the console" }).click();
  const running = rig.client.pods.exec(
    (async function* () {
      yield {
        input: {
          case: "start",
          value: {
            idOrName: "web",
            args: [
              "sh",
              "-c",
              "printf '\\033[31mto the console\\033[0m\\033]0;title\\007\\033]8;;http://x\\033\\\\<img src=x onerror=pwned=1>\\n' >/dev/console",
            ],
          },
        },
      } as const;
    })(),
  );
  for await (const _answer of running);
  await details.getByText("to the console").waitFor();
  const shown = (await details.getByLabel("Console").textContent()) ?? "";
  t.regex(shown, /to the console<img src=x onerror=pwned=1>/);
  // oxlint-disable-next-line no-control-regex
  t.notRegex(shown, /\u001b|\[31m|title|http:/);
  await picture("pod");
  await page.keyboard.press("Escape");
  await details.waitFor({ state: "detached" });
  t.pass();
});

test("a new pod, a paused one and a deleted one are seen at once", async (t) => {
  t.timeout(60_000);
  const { pods } = rig.client;
  await pods.create({ spec: { name: "late" } });
  await page.getByRole("button", { name: /^late, running/ }).waitFor();
  await pods.pause({ idOrName: "late" });
  await page.getByRole("button", { name: /^late, paused/ }).waitFor();
  await pods.delete({ idOrName: "late" });
  await page.getByRole("button", { name: /^late,/ }).waitFor({ state: "detached" });
  await page.getByRole("link", { name: "Events" }).click();
  t.regex((await page.getByRole("main").textContent()) ?? "", /deleted\s*late/);
  await picture("events");
});

test("the keyboard is enough", async (t) => {
  await page.getByRole("link", { name: "Pods", exact: true }).click();
  await page.keyboard.press("/");
  await page.keyboard.type("192.168.123.40");
  const table = page.getByRole("region", { name: /^Pods/ });
  await until("one row", async () => (await table.getByRole("button").count()) === 1);
  await table.focus();
  await page.keyboard.press("ArrowDown");
  await page.getByRole("complementary", { name: "Pod db" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("searchbox").fill("");
  const unnamed = await page.evaluate<number>(
    `[...document.querySelectorAll("button, a, input, select")].filter(
      (each) => !(each.innerText || each.ariaLabel || each.closest("label")?.innerText)).length`,
  );
  t.is(unnamed, 0, "every control has a name");
  await picture("pods");
});

test("each pool is a picture with its holders", async (t) => {
  await page.getByRole("link", { name: "Addresses" }).click();
  const pool = page.getByRole("region", { name: "Pool 192.168.123.0/24" });
  t.is(await pool.locator("rect.used").count(), 2);
  t.is(await pool.locator("rect").count(), 256);
  t.regex((await page.getByRole("main").textContent()) ?? "", /192\.168\.123\.40\s*db/);
  await picture("addresses");
});

test("the host shows its health and its drift", async (t) => {
  await page.getByRole("link", { name: "Host" }).click();
  await page.getByText("The host is as planned").waitFor();
  t.regex((await page.getByRole("main").textContent()) ?? "", /QEMU 7\.2.*uid 0, gid 0: admin/s);
});

test("each start is a waterfall, also those from before the page was opened", async (t) => {
  await page.getByRole("link", { name: "Starts" }).click();
  const starts = page.getByRole("region", { name: "Starts of pods" });
  const text = (await starts.textContent()) ?? "";
  for (const name of ["web", "db"]) t.regex(text, new RegExp(`${name}[\\d.]+ m?s`), name);
  t.regex(text, /late deleted/);
  const steps = await starts.getByRole("img").first().getAttribute("aria-label");
  t.regex(steps ?? "", /vm\.start|guest\.configure/);
  await picture("starts");
});

test("in a narrow window nothing is cut off", async (t) => {
  await page.setViewportSize({ width: 400, height: 800 });
  for (const view of ["Network", "Pods", "Starts", "Addresses", "Policies", "Events", "Host"]) {
    await page.getByRole("link", { name: view, exact: true }).click();
    await page.getByRole("heading", { name: view, exact: true }).waitFor();
    const width = await page.evaluate<number>("document.documentElement.scrollWidth");
    t.true(width <= 400, `${view}: ${width}`);
  }
  await page.getByRole("link", { name: "Network", exact: true }).click();
  await picture("narrow");
  await page.setViewportSize({ width: 1360, height: 860 });
});

/** The contrast that guidelines for accessibility define; colours are `rgb(1, 2, 3)`. */
function contrast(one: string, other: string): number {
  const luminance = (text: string): number => {
    const [r = 0, g = 0, b = 0] = (text.match(/[\d.]+/g) ?? []).map((part) => {
      const c = Number(part) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [high = 0, low = 0] = [luminance(one), luminance(other)].toSorted((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

for (const colorScheme of ["light", "dark"] as const)
  test(`every text can be read, in ${colorScheme}`, async (t) => {
    await page.emulateMedia({ colorScheme });
    await page.getByRole("button", { name: /^web, running/ }).click();
    const pairs = await page.evaluate<[string, string, string][]>(`
      [...document.querySelectorAll("#page *")]
        .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
        .map((each) => {
          let behind = each;
          while (behind && /, 0\\)$|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
          return [each.textContent.slice(0, 30), getComputedStyle(each).color, getComputedStyle(behind ?? document.body).backgroundColor];
        })`);
    t.true(pairs.length > 30);
    for (const [text, color, behind] of pairs)
      t.true(contrast(color, behind) >= 4.5, `${text}: ${color} on ${behind}`);
    await page.keyboard.press("Escape");
    await page.emulateMedia({ colorScheme: null });
  });

test("it is dark for who wants it", async (t) => {
  await page.getByRole("link", { name: "Network", exact: true }).click();
  await page.emulateMedia({ colorScheme: "dark" });
  const shade = await page.evaluate<string>("getComputedStyle(document.body).backgroundColor");
  t.is(shade, "rgb(20, 24, 26)");
  await page.getByRole("button", { name: /^web, running/ }).click();
  await page.getByRole("complementary", { name: "Pod web" }).waitFor();
  await picture("network-dark");
  await page.keyboard.press("Escape");
});

test("podnetd's absence is shown, and its return", async (t) => {
  t.timeout(60_000);
  const { origin } = new URL(opened);
  await rig.daemon.kill();
  await page.getByText("podnetd does not answer", { exact: true }).waitFor({ timeout: 30_000 });
  await rig.restart("kill");
  await page
    .getByText("healthy")
    .or(page.getByText(/warning/))
    .waitFor({ timeout: 30_000 });
  t.true(page.url().startsWith(origin));
  await page.getByRole("button", { name: /^web, running/ }).waitFor();
});

test("with --allow-changes a pod is paused and resumed from the page", async (t) => {
  t.timeout(60_000);
  const changing = await (await browser.newContext()).newPage();
  await changing.goto(await startUi("--allow-changes"));
  await changing.getByRole("button", { name: /^db, running/ }).click();
  const details = changing.getByRole("complementary", { name: "Pod db" });
  await details.getByRole("button", { name: "Pause" }).click();
  await details.getByText("paused", { exact: true }).waitFor();
  await details.getByRole("button", { name: "Resume" }).click();
  await details.getByText("running", { exact: true }).waitFor();
  await changing.context().close();
  t.pass();
});

test("at a socket the page is for its user alone, and a forwarded port shows it", async (t) => {
  const socket = path.join(directory, "page.sock");
  const url = await startUi("--listen", socket);
  t.is((await rig.lab.host.run("stat", "-c", "%a", socket)).trim(), "600");
  const at = url.replace("PORT", "7700");
  const ask = (...words: string[]) => curl(at, "--unix-socket", socket, ...words);
  t.is((await ask("-H", "Host: attacker.example:7700")).status, 403);
  t.is((await ask("-H", "Host: localhost.attacker.example")).status, 403);
  const { status, text } = await ask();
  t.is(status, 200);
  t.regex(text, /<div id="page">/);
  t.is((await ask()).status, 403, "the address opens it once");
});

test("names, labels and texts with markup are texts", async (t) => {
  const markup = `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;
  const pod = {
    id: "pod0",
    name: markup,
    state: PodState.FAILED,
    labels: { [markup]: markup },
    reason: markup,
    failure: { code: markup, message: markup, hint: markup },
    spans: [{ step: markup, startMs: 0, durationMs: 1, detail: markup }],
    interfaces: [{ guestName: markup, network: markup, mac: markup, addresses: [markup] }],
    ports: [{ hostIp: markup, hostPort: 1, podPort: 1, protocol: markup }],
  };
  const played = createRouterTransport(({ service }) => {
    service(PodService, {
      async *watch({ after }, { signal }) {
        if (after === undefined) {
          yield { kind: Kind.SNAPSHOT, pod, cursor: 2n };
          yield { kind: Kind.SYNCED, cursor: 2n };
          return;
        }
        yield { kind: Kind.CREATED, pod, cursor: 1n, text: markup };
        yield { kind: Kind.UPDATED, pod, cursor: 2n, text: "failed", error: { message: markup } };
        await once(signal, "abort");
      },
    });
    service(NetworkService, {
      list: () => ({ networks: [{ name: markup, bridge: markup, subnets: [{ cidr: markup }] }] }),
    });
    service(NodeService, {
      info: () => ({ hostname: markup, version: markup, kernel: markup }),
      health: () => ({ checks: [{ name: markup, message: markup, hint: markup }] }),
      diff: () => ({ parts: [{ part: markup, found: [{ subject: markup, found: markup }] }] }),
    });
  });
  const podnet = {
    pods: createClient(PodService, played),
    networks: createClient(NetworkService, played),
    node: createClient(NodeService, played),
  } as unknown as Podnet;
  await using served = await servePage({ podnet, listen: 0, allowChanges: false });
  await using own = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
  const hostile = await own.newPage();
  await hostile.goto(served.url);
  await hostile
    .getByRole("button", { name: /, failed/ })
    .first()
    .click();
  for (const view of ["Network", "Pods", "Starts", "Addresses", "Policies", "Events", "Host"]) {
    await hostile.getByRole("link", { name: view, exact: true }).click();
    await hostile.getByRole("heading", { name: view, exact: true }).waitFor();
    t.is(await hostile.locator("#page img[onerror], #page script").count(), 0, view);
  }
  t.is(await hostile.evaluate("typeof window.pwned"), "undefined");
  t.regex((await hostile.getByRole("complementary").textContent()) ?? "", /<script>/);
});

test("a thousand pods are drawn as far as they are in sight", async (t) => {
  t.timeout(60_000);
  // (A played podnetd: what is tested is the page.)
  const all = Array.from({ length: 1000 }, (_each, i) => ({
    id: `pod${i}`,
    name: `pod-${String(i).padStart(4, "0")}`,
    state: PodState.RUNNING,
    interfaces: [{ network: "default", addresses: [`10.1.${Math.floor(i / 250)}.${i % 250}/16`] }],
  }));
  const played = createRouterTransport(({ service }) => {
    service(PodService, {
      async *watch({ after }, { signal }) {
        if (after === undefined) for (const pod of all) yield { kind: Kind.SNAPSHOT, pod };
        if (after === undefined) yield { kind: Kind.SYNCED };
        await once(signal, "abort");
      },
    });
    service(NetworkService, {
      list: () => ({
        networks: [
          {
            name: "default",
            bridge: "hyper0",
            subnets: [{ cidr: "10.1.0.0/16", size: "65536", used: "1000" }],
          },
        ],
      }),
    });
    service(NodeService, { info: () => ({ hostname: "played" }), health: () => ({ ok: true }) });
  });
  const podnet = {
    pods: createClient(PodService, played),
    networks: createClient(NetworkService, played),
    node: createClient(NodeService, played),
  } as unknown as Podnet;
  await using many = await servePage({ podnet, listen: 0, allowChanges: false });
  await using own = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
  const crowd = await own.newPage();
  await crowd.goto(many.url);
  const begun = performance.now();
  const network = crowd.getByRole("region", { name: "Network default" });
  await until("all pods", async () => (await network.getByRole("button").count()) === 1000);
  t.log(`1,000 pods after ${(performance.now() - begun).toFixed(0)} ms`);
  await crowd.getByRole("link", { name: "Pods", exact: true }).click();
  const table = crowd.getByRole("region", { name: /^Pods/ });
  t.true((await table.getByRole("row").count()) < 80);
  t.is(await table.getByRole("table").getAttribute("aria-rowcount"), "1001");
  await table.evaluate((box) => box.scrollTo({ top: box.scrollHeight }));
  await table.getByRole("button", { name: "pod-0999" }).waitFor();
  t.true((await table.getByRole("row").count()) < 80);
  await crowd.getByRole("link", { name: "Addresses" }).click();
  const pool = crowd.getByRole("region", { name: "Pool 10.1.0.0/16" });
  t.is(await pool.getByRole("img").count(), 4, "the parts that have holders");
});

test("nothing was loaded from elsewhere, and the browser complained of nothing", (t) => {
  const { origin } = new URL(opened);
  t.deepEqual(
    requested.filter((url) => !url.startsWith(`${origin}/`)),
    [],
  );
  const lost = /ERR_INCOMPLETE_CHUNKED_ENCODING|status of (?:400|403)|ERR_CONNECTION/;
  t.deepEqual(
    complaints.filter((text) => !lost.test(text)),
    [],
  );
});
