import { spawn } from "node:child_process";
import { once } from "node:events";
import type { FlannelConfig, Subnets } from "./flannel-format.ts";
import { netText } from "./flannel-net.ts";

/** Feeds a program its standard input; throws when it fails. */
async function fed(program: string, words: readonly string[], input = ""): Promise<void> {
  const child = spawn(program, words, { stdio: ["pipe", "inherit", "inherit"] });
  // (One that reads nothing may have ended.)
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`${program} ended with ${code}`);
}

/**
 * The rules of flannel's later releases, in its own chains. They are written once: the five-second
 * repair is left out.
 */
export async function writeRules(
  config: FlannelConfig,
  subnets: Subnets,
  masquerade: boolean,
): Promise<void> {
  for (const { network } of config.families) {
    const subnet = network.family === 4 ? subnets.v4 : subnets.v6;
    if (subnet === undefined) continue;
    const [n, s] = [netText(network), netText(subnet)];
    const multicast = network.family === 4 ? "224.0.0.0/4" : "ff00::/8";
    const masq = (text: string, target: string): string =>
      `-A FLANNEL-POSTRTG ${text}-m comment --comment "flanneld masq" -j ${target}`;
    const forward = (text: string): string =>
      `-A FLANNEL-FWD ${text} -m comment --comment "flanneld forward" -j ACCEPT`;
    const nat = [
      "*nat",
      ":FLANNEL-POSTRTG - [0:0]",
      '-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG',
      masq("-m mark --mark 0x4000/0x4000 ", "RETURN"),
      masq(`-s ${s} -d ${n} `, "RETURN"),
      masq(`-s ${n} -d ${s} `, "RETURN"),
      masq(`! -s ${n} -d ${s} `, "RETURN"),
      masq(`-s ${n} ! -d ${multicast} `, "MASQUERADE --random-fully"),
      masq(`! -s ${n} -d ${n} `, "MASQUERADE --random-fully"),
      "COMMIT",
    ];
    const filter = [
      "*filter",
      ":FLANNEL-FWD - [0:0]",
      '-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD',
      forward(`-s ${n}`),
      forward(`-d ${n}`),
      "COMMIT",
    ];
    const program = network.family === 4 ? "iptables" : "ip6tables";
    // Rules of an earlier run go first, for a jump is added each time.
    for (const [table, chain, from, comment] of [
      ["nat", "FLANNEL-POSTRTG", "POSTROUTING", "flanneld masq"],
      ["filter", "FLANNEL-FWD", "FORWARD", "flanneld forward"],
    ] as const) {
      const jump = [from, "-m", "comment", "--comment", comment, "-j", chain];
      await fed("sh", ["-c", '"$@" 2>/dev/null || :', "sh", program, "-t", table, "-D", ...jump]);
    }
    await fed(
      `${program}-restore`,
      ["--noflush", "--wait"],
      [...(masquerade ? nat : []), ...filter, ""].join("\n"),
    );
  }
}
