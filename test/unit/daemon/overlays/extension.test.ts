import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { Cidr, Ipv4 } from "../../../../core/address.ts";
import { watchEffects } from "../../../../core/effect.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { Extension, type ExtensionConfig } from "../../../../daemon/overlays/kernel/extension.ts";
import {
  extensionArgv,
  extensionVariables,
} from "../../../../daemon/overlays/kernel/extension-command.ts";
import type { LogFields } from "../../../../linux/log.ts";
import type { Peer } from "../../../../overlay/peers.ts";

const { signal } = new AbortController();
const top = mkdtempSync(join(tmpdir(), "podnet-extension-"));

/**
 * Writes down how it was run, a line each: its arguments, its variables, and what it was given
 * to read.
 */
const recorder = join(top, "recorder");
writeFileSync(
  recorder,
  `#!/bin/sh\nread -r given\necho "$*|$NETWORK|$SUBNET|$PUBLIC_IP|$given" >>"$0.log"\ncase " $* " in *" 10.77.66.0/24 "*) [ -e "$0.fail" ] && exit 3 ;; esac\necho "  said $1  "\n`,
);
chmodSync(recorder, 0o755);
const recorded = (): string[] => {
  const text = readFileSync(`${recorder}.log`, "utf8");
  writeFileSync(`${recorder}.log`, "");
  return text.split("\n").slice(0, -1);
};

const none: ExtensionConfig = {
  type: "extension",
  preStartup: "",
  postStartup: "",
  subnetAdd: "",
  subnetRemove: "",
};

class Logged {
  readonly infos: LogFields[] = [];
  readonly warnings: LogFields[] = [];
  readonly info = (fields: LogFields): void => void this.infos.push(fields);
  readonly warn = (fields: LogFields): void => void this.warnings.push(fields);
}

const peer = (n: number, output: string | undefined, publicIp = `192.0.2.${n}`): Peer => ({
  key: `/net/subnets/10.77.${n}.0-24`,
  subnets: { v4: `10.77.${n}.0/24` as Cidr, v6: undefined },
  publicIp: publicIp as Ipv4,
  publicIp6: undefined,
  attributes: { type: "extension", output },
  reserved: false,
});

test("a command is split at blanks and its variables replaced, and no shell has a part in it", (t) => {
  const variables = { SUBNET: "10.77.5.0/24", PUBLIC_IP: "192.0.2.5; reboot", EMPTY: "" };
  t.deepEqual(
    extensionArgv("  ip  route add $SUBNET via\t${PUBLIC_IP} x${SUBNET}y$NONE ", variables),
    ["ip", "route", "add", "10.77.5.0/24", "via", "192.0.2.5; reboot", "x10.77.5.0/24y"],
  );
  t.deepEqual(extensionArgv("echo `id` $(id) | tee", variables), [
    "echo",
    "`id`",
    "$(id)",
    "|",
    "tee",
  ]);
  t.deepEqual(extensionArgv("a $constructor $SUBNETS", variables), ["a", "", ""]);
  for (const empty of ["", "  ", "$NONE", "$EMPTY x", "a\0b"])
    t.throws(() => extensionArgv(empty, variables), { code: "OVERLAY_CONFIG_INVALID" }, empty);
  t.deepEqual(
    extensionVariables({ subnet: "10.77.5.0/24" as Cidr, subnet6: "fd00::/64" as Cidr }),
    { SUBNET: "10.77.5.0/24", IPV6_SUBNET: "fd00::/64" },
  );
});

test.serial(
  "an extension's commands are notified of this host, then of each peer as it comes, changes and goes",
  async (t) => {
    const log = new Logged();
    const extension = new Extension({
      log,
      config: {
        type: "extension",
        preStartup: `${recorder} before $SUBNET`,
        postStartup: `${recorder} after $NETWORK`,
        subnetAdd: `${recorder} add $SUBNET`,
        subnetRemove: `${recorder} remove $SUBNET`,
      },
    });
    t.is(await extension.before(signal), "said before");
    const own = {
      network: "10.77.0.0/16" as Cidr,
      subnet: "10.77.1.0/24" as Cidr,
      publicIp: "192.0.2.1" as Ipv4,
    };
    await extension.after(own, signal);
    t.deepEqual(recorded(), [
      "before ||||",
      "after 10.77.0.0/16|10.77.0.0/16|10.77.1.0/24|192.0.2.1|",
    ]);
    t.deepEqual(await extension.follow([peer(2, "two"), peer(3, undefined)], signal), []);
    t.deepEqual(recorded(), [
      "add 10.77.2.0/24||10.77.2.0/24|192.0.2.2|two",
      "add 10.77.3.0/24||10.77.3.0/24|192.0.2.3|",
    ]);
    // Nothing is new; then one has changed, one has gone and one has come.
    await extension.follow([peer(2, "two"), peer(3, undefined)], signal);
    await extension.follow([peer(2, "other"), peer(4, "four")], signal);
    t.deepEqual(recorded(), [
      "remove 10.77.2.0/24||10.77.2.0/24|192.0.2.2|two",
      "remove 10.77.3.0/24||10.77.3.0/24|192.0.2.3|",
      "add 10.77.2.0/24||10.77.2.0/24|192.0.2.2|other",
      "add 10.77.4.0/24||10.77.4.0/24|192.0.2.4|four",
    ]);
    await extension.follow([peer(2, "other", "192.0.2.99")], signal);
    t.deepEqual(recorded().slice(-1), ["add 10.77.2.0/24||10.77.2.0/24|192.0.2.99|other"]);
    t.is(log.warnings.length, 0);
    t.is(log.infos[0]?.["stdout"], "  said before  \n");
  },
);

test.serial(
  "a command that fails is tried again at the next look, and holds up no other peer",
  async (t) => {
    const log = new Logged();
    const config = { ...none, subnetAdd: `${recorder} add $SUBNET` };
    const extension = new Extension({ config, log });
    writeFileSync(`${recorder}.fail`, "");
    const peers = [peer(66, ""), peer(7, "")];
    const failures = await extension.follow(peers, signal);
    t.deepEqual(
      failures.map(({ code, field, details }) => [code, field, details["exitCode"]]),
      [["COMMAND_FAILED", "Backend.SubnetAddCommand", 3]],
    );
    t.is(log.warnings[0]?.["subnet"], "10.77.66.0/24");
    t.is(recorded().length, 2);
    rmSync(`${recorder}.fail`);
    t.deepEqual(await extension.follow(peers, signal), []);
    t.deepEqual(recorded(), ["add 10.77.66.0/24||10.77.66.0/24|192.0.2.66|"], "that one alone");
  },
);

test.serial(
  "a command that does not end, prints for ever or is not there is an error",
  async (t) => {
    const start = (preStartup: string, timeoutMs?: number): Promise<string | undefined> =>
      new Extension({
        config: { ...none, preStartup },
        log: new Logged(),
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      }).before(signal);
    await t.throwsAsync(start("sleep 600", 50), { code: "DEADLINE_EXCEEDED" });
    await t.throwsAsync(start("yes"), { code: "COMMAND_FAILED" });
    await t.throwsAsync(start("seq 1 8000"), {
      code: "COMMAND_FAILED",
      message: /prints too much/,
    });
    await t.throwsAsync(start("podnet-no-such-program"), { code: "COMMAND_FAILED" });
    await t.throwsAsync(start("$NOTHING"), { code: "OVERLAY_CONFIG_INVALID" });
    t.is(await start("echo a $(reboot) ; b"), "a $(reboot) ; b");
    t.is(await start(""), undefined);
  },
);

test.serial("an extension that is aborted runs no further command", async (t) => {
  const log = new Logged();
  const extension = new Extension({ config: { ...none, subnetAdd: "sleep 600" }, log });
  const ending = new AbortController();
  watchEffects({ at: () => {}, atAsync: () => Promise.resolve(ending.abort()) });
  t.teardown(() => watchEffects(undefined));
  await t.throwsAsync(extension.follow([peer(2, ""), peer(3, "")], ending.signal), {
    instanceOf: PodnetError,
    code: "CANCELLED",
  });
  t.deepEqual(log.warnings, []);
});
