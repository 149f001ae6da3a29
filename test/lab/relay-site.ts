import { execFile, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { type Ip, parseIp } from "../../core/address.ts";
import { compile, type Surroundings } from "../../policy/compile.ts";
import { networkProgramArgv } from "../../hypervisor/jail/argv.ts";
import { findLauncher } from "../../hypervisor/jail/launcher.ts";
import { canonicalName, type DomainName } from "../../policy/domain.ts";
import { readPolicy } from "../../policy/read-policy.ts";
import type { FromRelay, RelayVerdict, ToRelay } from "../../relay/messages.ts";
import { relayProgram } from "../../relay/program.ts";
import { type Lab, labAddresses, type Machine, openLab } from "./lab.ts";
import type { Visit, Visited } from "./site-client.ts";

const top = path.resolve(import.meta.dirname, "../..");
const exec = promisify(execFile);

/** Two addresses of the internet, each with several names; and the same of IPv6. */
export const siteAddresses = {
  one: "203.0.113.10",
  two: "203.0.113.11",
  six: "2001:db8:7::10",
} as const;
/** The pod: the lab's LAN. */
const podAddresses = [labAddresses.lan, "2001:db8:1::20"].map((ip) => parseIp(ip));
const relayPort = 4443;

const named = (text: string): DomainName => canonicalName(text) as DomainName;

/**
 * A lab with the relay: `lan` is a pod, whose connections to ports 80 and 443 the host redirects to
 * a relay of its own.
 */
export class RelaySite implements AsyncDisposable {
  readonly lab: Lab;
  readonly verdicts: RelayVerdict[] = [];
  /** The relay's process. */
  readonly relay: ChildProcess;
  readonly #control: Socket;
  readonly #waiting = new Map<number, () => void>();
  readonly #owned: AsyncDisposableStack;
  #seq = 0;

  private constructor(lab: Lab, relay: ChildProcess, control: Socket, owned: AsyncDisposableStack) {
    [this.lab, this.relay, this.#control, this.#owned] = [lab, relay, control, owned];
    let rest = "";
    control.setEncoding("utf8").on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#hear(JSON.parse(line) as FromRelay);
    });
    control.on("error", () => {});
  }

  /** With the relay confined as podnetd confines it, as `uid`; else it runs from its sources. */
  static async open(uid?: number): Promise<RelaySite> {
    await using made = new AsyncDisposableStack();
    const lab = made.use(await openLab());
    const directory = made.adopt(mkdtempSync(path.join(tmpdir(), "relay-")), (at) =>
      rmSync(at, { recursive: true }),
    );
    await addSix(lab);
    await redirect(lab.host);
    for (const address of Object.values(siteAddresses))
      made.adopt(await site(lab.internet, directory, address), ended);
    const control = path.join(directory, "control");
    const relay = made.adopt(
      lab.host.spawn([...startOf(directory, uid), String(relayPort), control, "1000"], {
        stdio: ["ignore", "pipe", "inherit", "pipe"],
      }),
      ended,
    );
    await once(relay.stdout as NonNullable<typeof relay.stdout>, "data");
    const client = made.adopt(connect({ path: control }), (socket) => void socket.destroy());
    await once(client, "connect");
    return new RelaySite(lab, relay, client, made.move());
  }

  /** Gives the pod a policy's rules, and waits until they hold. */
  async policy(fields: object, around: Partial<Surroundings> = {}): Promise<void> {
    const { egress } = compile([readPolicy({ name: "p", ...fields })], {
      pods: [],
      host: [parseIp(labAddresses.hostOnLan), parseIp(labAddresses.hostUplink)],
      hostServices: [],
      cloudMetadata: false,
      ...around,
    });
    await this.say({ type: "pod", pod: { id: "pod", addresses: podAddresses, egress } });
  }

  /** Says that the resolver gave the pod addresses of names. */
  async answer(names: Readonly<Record<string, readonly string[]>>, seconds = 60): Promise<void> {
    for (const [name, texts] of Object.entries(names)) {
      const addresses: readonly Ip[] = texts.map((text) => parseIp(text));
      await this.say({ type: "answer", id: "pod", name: named(name), addresses, seconds });
    }
  }

  /** Sends one message, and waits until it holds. */
  async say(message: ToRelay): Promise<void> {
    const seq = ++this.#seq;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.set(seq, resolve);
    this.#control.write(`${JSON.stringify({ ...message, seq })}\n`);
    await promise;
  }

  /** What the pod's connection gets. */
  async visit(visit: Omit<Visit, "pieces"> & { readonly says?: string }): Promise<Visited> {
    const { says = "", ...others } = visit;
    const [first] = await this.visits({
      ...others,
      pieces: says === "" ? [] : [Buffer.from(says, "latin1").toString("base64")],
    });
    return first as Visited;
  }

  async visits(visit: Visit): Promise<readonly Visited[]> {
    const client = path.join(top, "test/lab/site-client.ts");
    return JSON.parse(
      await this.lab.lan.run(process.execPath, client, JSON.stringify(visit)),
    ) as Visited[];
  }

  /** curl in the pod, with a name at an address; its output, or its exit code. */
  async curl(url: string, address: string, ...words: readonly string[]): Promise<string> {
    const { hostname } = new URL(url);
    const places = [80, 443].flatMap((port) => [
      "--resolve",
      `${hostname}:${port}:${address.includes(":") ? `[${address}]` : address}`,
    ]);
    try {
      return await this.lab.lan.run("curl", "-sSk", "--max-time", "20", ...places, ...words, url);
    } catch (error) {
      return `exit ${(error as { code?: number }).code}`;
    }
  }

  /** What the pod does meanwhile reaches servers directly. */
  async without<T>(body: () => Promise<T>): Promise<T> {
    await this.lab.host.run("nft", "delete table inet relay_test");
    try {
      return await body();
    } finally {
      await redirect(this.lab.host);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync();
  }

  #hear(message: FromRelay): void {
    if (message.type === "verdict") this.verdicts.push(message.verdict);
    else this.#waiting.get(message.seq)?.();
  }
}

function startOf(directory: string, uid: number | undefined): readonly [string, ...string[]] {
  if (uid === undefined) return [process.execPath, path.join(top, "relay/main.ts")];
  chownSync(directory, uid, uid);
  const { argv, files } = relayProgram(top, process.execPath);
  const launcher = findLauncher();
  const place = { launcher, uid, runDir: directory, reportFd: 3, files, openFiles: 2100 };
  const [first = "", ...others] = networkProgramArgv(place);
  return [first, ...others, ...argv];
}

/** Ends a program, and what a launcher has started for it. */
export async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  // The launcher ends as the program ends that it waits for.
  const [confined] = childrenOf(child.pid as number);
  if (confined === undefined) child.kill("SIGKILL");
  else process.kill(confined, "SIGKILL");
  await once(child, "exit");
}

/** The processes that a process has started. */
export const childrenOf = (pid: number): readonly number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);

/** Starts some hosts of the internet at one address: see test/lab/named-site.ts. */
export async function site(on: Machine, directory: string, address: string): Promise<ChildProcess> {
  const [key, certificate] = [path.join(directory, "key.pem"), path.join(directory, "cert.pem")];
  const words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  await exec("openssl", [
    ...words,
    "-keyout",
    key,
    "-out",
    certificate,
    "-subj",
    "/CN=site",
    "-days",
    "2",
  ]);
  const child = on.spawn(
    [process.execPath, path.join(top, "test/lab/named-site.ts"), key, certificate, address],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  await once(child.stdout as NonNullable<typeof child.stdout>, "data");
  return child;
}

async function addSix({ host, lan, internet }: Lab): Promise<void> {
  await internet.run("ip", "addr", "add", `${siteAddresses.two}/32`, "dev", "lo");
  await internet.run("ip", "addr", "add", `${siteAddresses.six}/128`, "dev", "lo", "nodad");
  await lan.run("ip", "addr", "add", "2001:db8:1::20/64", "dev", "eth0", "nodad");
  await host.run("ip", "addr", "add", "2001:db8:1::1/64", "dev", "lan0", "nodad");
  await host.run("ip", "addr", "add", "2001:db8:2::2/64", "dev", "wan0", "nodad");
  await internet.run("ip", "addr", "add", "2001:db8:2::1/64", "dev", "eth0", "nodad");
  await lan.run("ip", "-6", "route", "add", "default", "via", "2001:db8:1::1");
  await host.run("ip", "-6", "route", "add", "default", "via", "2001:db8:2::1");
  await host.run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1", "net.ipv4.ip_forward=1");
}

const redirect = async (host: Machine): Promise<void> =>
  void (await host.run(
    "nft",
    `table inet relay_test {
      chain in {
        type nat hook prerouting priority dstnat;
        iifname lan0 tcp dport { 80, 443 } redirect to :${relayPort}
      }
    }`,
  ));
