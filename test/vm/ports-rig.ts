import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../../api/client.ts";
import type { ExecRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { parsePortText } from "../../api/port-text.ts";
import { run } from "../../linux/processes/command.ts";
import type { Machine } from "../lab/lab.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

/** Addresses of IPv6 that a ports rig's machines have alongside those of the lab (RFC 3849). */
export const six = { hostOnLan: "2001:db8:2::1", lan: "2001:db8:2::20" } as const;

const inGuest = "/tmp/port-peer";

/** Whoever may ask for a port, and may serve one. */
export interface Peer {
  ask(protocol: string, address: string, port: number): Promise<string>;
  serve(protocol: string, port: number, name: string): Promise<void>;
  /** Sends back what TCP connections to the port bring. */
  echo(port: number): Promise<void>;
}

export interface PortsRig extends Rig {
  /** A machine of the lab. */
  machine(machine: Machine): Peer;
  /** A running pod, which has the program from here on. */
  pod(name: string): Promise<Peer>;
}

/**
 * A rig whose host has IPv6 too, with the program that serves and asks (test/peers/port-peer.c).
 */
export async function openPortsRig(config: string): Promise<PortsRig> {
  const rig = await openRig(config);
  const { host, lan } = rig.lab;
  await host.run("ip", "address", "add", `${six.hostOnLan}/64`, "dev", "lan0", "nodad");
  await lan.run("ip", "address", "add", `${six.lan}/64`, "dev", "eth0", "nodad");
  await lan.run("ip", "route", "add", "default", "via", six.hostOnLan);
  const program = await buildPeer();
  return Object.assign(Object.create(rig) as Rig, {
    machine: (machine: Machine): Peer =>
      peerOf((...words) => machine.run(program, ...words).catch(outputOf)),
    async pod(name: string): Promise<Peer> {
      await putFile(rig.client, name, inGuest, readFileSync(program));
      return peerOf(async (...words) => (await execIn(rig.client, name, inGuest, ...words)).output);
    },
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  });
}

/** What a command has written that failed. */
const outputOf = (thrown: unknown): string => (thrown as { readonly stdout?: string }).stdout ?? "";

function peerOf(words: (...words: [string, ...string[]]) => Promise<string>): Peer {
  const start = async (...order: [string, ...string[]]): Promise<void> => {
    const said = await words(...order);
    if (said !== "ready\n") throw new Error(`Does not serve: ${said}`);
  };
  return {
    ask: async (protocol, address, port) =>
      (await words("ask", protocol, address, `${port}`)).trim(),
    serve: (protocol, port, name) => start("serve", protocol, `${port}`, name),
    echo: (port) => start("echo", `${port}`),
  };
}

async function buildPeer(): Promise<string> {
  const program = join(mkdtempSync(join(tmpdir(), "podnet-peer-")), "port-peer");
  const source = join(import.meta.dirname, "../peers/port-peer.c");
  const flags = ["-static", "-Os", "-Wall", "-Wextra", "-Werror", "-std=gnu11"];
  await run(["musl-gcc", ...flags, source, "-o", program]);
  return program;
}

/** Writes a program into a running pod. */
export async function putFile(
  client: Podnet,
  idOrName: string,
  path: string,
  bytes: Uint8Array,
): Promise<void> {
  const args = ["sh", "-c", `cat > ${path} && chmod 755 ${path}`];
  const ended = Promise.withResolvers<void>();
  async function* input(): AsyncGenerator<MessageInitShape<typeof ExecRequestSchema>> {
    yield { input: { case: "start" as const, value: { idOrName, args } } };
    for (let at = 0; at < bytes.length; at += 1 << 15) {
      yield { input: { case: "stdin" as const, value: bytes.slice(at, at + (1 << 15)) } };
    }
    yield { input: { case: "closeStdin" as const, value: {} } };
    await ended.promise;
  }
  try {
    for await (const { output } of client.pods.exec(input()))
      if (output.case === "exit" && output.value.code !== 0)
        throw new Error(`Cannot write ${path}: exit ${output.value.code}`);
  } finally {
    ended.resolve();
  }
}

/** Ports as they are written on the command line. */
export const portsOf = (...texts: readonly string[]) => texts.map((text) => parsePortText(text));

/** Whether a TCP socket of a machine has the port. */
export const socketAt = async (machine: Machine, port: number): Promise<boolean> =>
  (await machine.run("cat", "/proc/net/tcp", "/proc/net/tcp6")).includes(
    `:${port.toString(16).toUpperCase().padStart(4, "0")} `,
  );
