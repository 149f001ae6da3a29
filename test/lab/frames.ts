import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { FirewallSite } from "./firewall-site.ts";

const script = `${import.meta.dirname}/frames.py`;

/** A frame as `frames.py` makes one. */
export interface Frame {
  readonly dst: string;
  readonly src: string;
  readonly saddr: string;
  readonly daddr: string;
  readonly udp?: readonly [from: number, to: number];
  readonly icmp?: readonly [type: number, code: number];
  /** Tags, the outer one first. */
  readonly vlans?: readonly number[];
  /** It is sent so many times, from one MAC after the other. */
  readonly sources?: number;
  /** By which it is known where it arrives. */
  readonly text: string;
}

/** A frame as it is, in hexadecimal digits, with its text somewhere in it. */
export interface RawFrame {
  readonly raw: string;
  readonly text: string;
}

/** Sends frames out of a machine's link, one after the other. */
export const sendFrames = (
  site: FirewallSite,
  machine: string,
  link: string,
  frames: readonly (Frame | RawFrame)[],
): Promise<string> =>
  site.inside(
    machine,
    "python3",
    script,
    "send",
    link,
    ...frames.map((frame) => JSON.stringify(frame)),
  );

/**
 * Which of some texts arrive at a machine's link while `send` is done, in their order: until the
 * last of them has, which is one that is to arrive and sent last.
 */
export async function heardWhile(
  { site, machine, link }: { site: FirewallSite; machine: string; link: string },
  texts: readonly string[],
  send: () => Promise<unknown>,
): Promise<string[]> {
  const [command, ...rest] = site.command(machine, "python3", script, "hear", link);
  const child = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const heard = new Set<string>();
    const patterns = texts.map((text) => [text, Buffer.from(text).toString("hex")] as const);
    let sent: Promise<unknown> | undefined;
    const limit = setTimeout(() => child.kill("SIGKILL"), 10_000);
    for await (const line of createInterface({ input: child.stdout })) {
      if (line === "listening") sent = send();
      for (const [text, digits] of patterns) if (line.includes(digits)) heard.add(text);
      if (heard.has(texts.at(-1) ?? "")) break;
    }
    clearTimeout(limit);
    await sent;
    return texts.filter((text) => heard.has(text));
  } finally {
    child.kill("SIGKILL");
  }
}
