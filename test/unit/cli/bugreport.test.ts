import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import test from "ava";
import { ownRules } from "../../../cli/bugreport/gather.ts";
import { redactJson, redactLines, redactText } from "../../../cli/bugreport/redact.ts";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const server = await serve(playDaemon().routes);
test.after.always(() => server.kill());
const directory = mkdtempSync("/tmp/podnet-bugreport-");
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

/** A secret of tests, which no output may have. */
const planted = "hunter2XQ9";

for (const [what, text] of [
  ["a URL", `connect to https://etcd:${planted}@10.0.0.1:2379/v3`],
  ["a URL whose password has an @", `http://u:p@ss${planted}@host/`],
  ["a variable", `DB_PASSWORD=${planted} make`],
  ["a variable in quotes", `export API_KEY="two ${planted} words"`],
  ["a key of TOML", `auth.token = "${planted}"   # file`],
  ["a list of TOML", `tokens = ["a", "${planted}"]`],
  ["JSON in a text", `{\\"apiKey\\":\\"${planted}\\"}`],
  ["YAML", `clientSecret: ${planted}`],
  ["a value with a quote", `password="a\\"${planted}"`],
  ["a value whose quote does not close", `token: "${planted}`],
  ["a flag", `--password ${planted} --verbose`],
  ["a query", `GET /?access_token=${planted}&x=1`],
  ["a header", `Authorization: Bearer ${planted}abc`],
  ["a header of basic authorisation", `authorization: Basic ${planted}==`],
  ["a private key", `-----BEGIN RSA PRIVATE KEY-----\n${planted}\n-----END RSA PRIVATE KEY-----`],
  ["a private key cut off", `-----BEGIN PRIVATE KEY-----\n${planted}`],
  ["a JSON web token", `jwt eyJhbGciOi.${planted}.sig`],
  ["a token of a forge", `ghp_${planted}0123456789`],
] as const) {
  test(`a report does not have the secret of ${what}`, (t) => {
    const left = redactText(`before ${text} after`);
    t.false(left.includes(planted), left);
    t.true(left.startsWith("before"));
    t.true(left.includes("[redacted]"));
  });
}

test("a report keeps what is no secret", (t) => {
  for (const text of [
    'state_dir = "/var/lib/podnet"  # default',
    "http://10.0.0.1:2379/v3/kv and 52:54:00:00:00:01 at fd00::1/64",
    "pod_id=abcdefghijkl step=vm.boot duration_ms=3",
    "mail ops@example.com",
  ])
    t.is(redactText(text), text);
});

test("JSON loses environments, arguments, and values of secret keys at any depth", (t) => {
  const json = {
    name: "web",
    spec: {
      process: { env: { PATH: planted }, args: ["sh", "-c", planted] },
      list: [{ registryPassword: planted, token: { deep: planted } }],
      environment: [`A=${planted}`],
      files: [{ path: "/etc/x", content: planted }],
      userData: planted,
      [`https://u:${planted}@h/`]: 1,
    },
  };
  const left = JSON.stringify(redactJson(json));
  t.false(left.includes(planted), left);
  for (const kept of ["web", "PATH", "/etc/x", "A=[redacted]"]) t.true(left.includes(kept), kept);
});

test("lines of a log are redacted as JSON and as text, damaged ones too", (t) => {
  const lines = [
    `{"msg":"x","env":{"A":"${planted}"}}`,
    `{"token":"${planted}`,
    `token=${planted}`,
  ];
  const left = redactLines(lines.join("\n"));
  t.false(left.includes(planted), left);
  t.is(left.split("\n").length, 3);
});

test("a hostile text is redacted in time", (t) => {
  for (const part of ["a", "token=[", "a.", "eyJ", "a://", 'x"', "password", "\\\\"]) {
    const begin = performance.now();
    redactText(part.repeat(200_000 / part.length));
    // (By its square each takes minutes.)
    t.true(performance.now() - begin < 20_000, part);
  }
});

test("rules of a report are podnet's own", (t) => {
  const ruleset = `table inet podnet-guard {
	chain x {
		drop
	}
}
table ip nat {
	chain POSTROUTING {
		ip saddr 10.1.1.1 masquerade
		ip saddr 10.2.2.2 masquerade comment "podnet:default"
	}
}
`;
  const left = ownRules(ruleset);
  t.true(left.includes("drop") && left.includes("10.2.2.2"));
  t.false(left.includes("10.1.1.1"));
});

const unpacked = (file: string): Map<string, string> => {
  const names = execFileSync("tar", ["-tzf", file], { encoding: "utf8" }).trim().split("\n");
  return new Map(
    names.map((name) => [
      name.replace(/^[^/]*\//, ""),
      execFileSync("tar", ["-xzOf", file, name], { encoding: "utf8" }),
    ]),
  );
};

test("a report is an archive for its owner, with all that its README names", async (t) => {
  const file = `${directory}/report.tar.gz`;
  const { code, out, err } = await podnet(["bugreport", "--file", file], { socket: server.h2 });
  t.deepEqual([code, out], [0, `${file}\n`], err);
  t.is(statSync(file).mode & 0o777, 0o600);
  const files = unpacked(file);
  const named = [...(files.get("README.txt") ?? "").matchAll(/^([\w-]+\.(?:json|txt)) /gm)];
  t.deepEqual(
    [...files.keys()].sort(),
    ["README.txt", ...named.map(([, name = ""]) => name)].sort(),
  );
  const json = (name: string) => JSON.parse(files.get(name) ?? "");
  t.is(json("versions.json").podnetd.version, "9.9.9");
  t.deepEqual(
    json("pods.json").map((pod: { name: string }) => pod.name),
    ["web", "db"],
  );
  t.regex(json("plans-and-drift.json").missing, /^[A-Z]+: /, "what failed has its reason");
  t.true(Array.isArray(json("events.json")));
  // Its answers are judged again.
  writeFileSync(`${directory}/host.json`, files.get("host.json") ?? "");
  const again = await podnet(["doctor", "--from", `${directory}/host.json`, "-o", "json"]);
  const found = JSON.parse(again.out).items;
  t.deepEqual(found, json("doctor.json").slice(0, found.length));
});

test("a report is made without podnetd, and overwrites nothing", async (t) => {
  const file = `${directory}/alone.tar.gz`;
  t.is((await podnet(["bugreport", "--file", file])).code, 0);
  t.regex(unpacked(file).get("pods.json") ?? "", /DAEMON_UNREACHABLE/);
  const before = readFileSync(file);
  symlinkSync(`${directory}/elsewhere`, `${directory}/link`);
  for (const [path, said] of [
    [file, /exists/],
    [`${directory}/link`, /exists/],
    [`${directory}/no/such/x`, /ENOENT/],
  ] as const) {
    const { code, err } = await podnet(["bugreport", "--file", path]);
    t.is(code, 2);
    t.regex(err, said);
  }
  t.deepEqual(readFileSync(file), before);
});
