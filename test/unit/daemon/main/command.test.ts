import { execFile } from "node:child_process";
import { mkdtempSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { configKeys } from "../../../../daemon/config/schema.ts";

const podnetd = join(import.meta.dirname, "../../../../bin/podnetd");
const scratch = mkdtempSync(join(tmpdir(), "podnetd-command-"));

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(program: string, ...args: readonly string[]): Promise<Ended> {
  try {
    const { stdout, stderr } = await promisify(execFile)(program, args, { timeout: 20_000 });
    return { code: 0, stdout, stderr };
  } catch (thrown) {
    return thrown as Ended;
  }
}

test("the help names every key with its flag and variable", async (t) => {
  const { code, stdout } = await run(podnetd, "--help");
  t.is(code, 0);
  const words = stdout.replaceAll(/\s+/g, " ");
  for (const { flag, env } of configKeys) {
    t.true(words.includes(`${flag} `), flag);
    t.true(words.includes(`(${env})`), env);
  }
});

test("it runs through a symbolic link, and shows where each value comes from", async (t) => {
  const link = join(scratch, "podnetd");
  symlinkSync(podnetd, link);
  const file = join(scratch, "config.toml");
  writeFileSync(file, 'log_level = "warn"\n');
  const { code, stdout } = await run(
    link,
    "config",
    "--resolved",
    "--config",
    file,
    "--network-mtu",
    "1400",
  );
  t.is(code, 0);
  t.regex(stdout, /^log_level += "warn" +# .*config\.toml$/m);
  t.regex(stdout, /^network\.mtu += 1400 +# --network-mtu$/m);
  t.regex(stdout, /^state_dir += "\/var\/lib\/podnet" +# default$/m);
});

test("wrong usage, wrong configuration and a host that does not do end with codes of their own", async (t) => {
  const usage = await run(podnetd, "--networkcidr", "10.0.0.0/8");
  t.is(usage.code, 2);
  t.regex(usage.stderr, /--network-cidr/);
  const config = await run(podnetd, "--network-cidr", "10.0.0.0/31");
  t.is(config.code, 6);
  t.regex(config.stderr, /"network\.cidr" from --network-cidr/);
  const unprivileged = ["--bounding-set=-net_admin", "--inh-caps=-net_admin"];
  const state = ["--state-dir", join(scratch, "state"), "--run-dir", join(scratch, "run")];
  const host = await run("setpriv", ...unprivileged, "--", podnetd, ...state);
  t.is(host.code, 6);
  t.regex(host.stderr, /PREFLIGHT_FAILED.*CAP_NET_ADMIN/);
});
