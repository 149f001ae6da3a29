import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import type { ErrorCode } from "../../core/errors.ts";
import { isPodnetError } from "../../core/errors.ts";
import { writeTinyGuest } from "../peers/tiny-guest.ts";
import { curl } from "../unit/api/fixtures/curl.ts";
import { openRig, reached, type Rig } from "./daemon-rig.ts";
import { refuses, type Spec } from "./daemon-refusal.ts";
import { debianGuest } from "./hypervisor-rig.ts";

let rig: Rig;
const scratch = mkdtempSync(join(tmpdir(), "podnet-bad-"));
const at = (name: string): string => join(scratch, name);
const deaf = await writeTinyGuest(scratch, "deaf");

// Root reads what it may not. This daemon's root may not: so that rights mean something.
const plainRoot = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] as const;

test.serial.before(async () => {
  useQemu(realQemu);
  const config = `factory = "cold"\nquarantine_s = 0\n[network]\nreserved = ["192.168.123.64/28"]\n[qemu]\npath = "${at("qemu")}"\nconfine = "off"\n[timeouts]\nready_s = 1\n`;
  rig = await openRig(config, (host) => ({
    ...host,
    spawn: (argv, options) => host.spawn([...plainRoot, ...argv], options),
  }));
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true, force: true });
});

const realQemu = 'exec qemu-system-x86_64 "$@"';

/** Makes the daemon's QEMU a script. */
function useQemu(script: string): void {
  const version = `[ "$1" = --version ] && echo "QEMU emulator version 7.2.22" && exit 0`;
  writeFileSync(at("qemu"), `#!/bin/sh\n${version}\n${script}\n`);
  chmodSync(at("qemu"), 0o755);
}

test.serial("a pod that others collide with", async (t) => {
  await rig.restart("stop", { PODNET_TIMEOUTS_READY_S: "60" });
  const interfaces = [{ address: "192.168.123.2", mac: "52:54:00:00:00:01" }];
  await t.notThrowsAsync(rig.client.pods.create({ spec: { name: "one", interfaces } }));
  await rig.restart("stop");
});

type Row = readonly [what: string, code: ErrorCode, field: string, message: RegExp, spec: Spec];

const refused: readonly Row[] = [
  ["a name that is taken", "NAME_IN_USE", "name", /"one"/, { name: "one" }],
  ["a name that is none", "INVALID_ARGUMENT", "name", /"-x"/, { name: "-x" }],
  ...interfaceRows("address", [
    ["an address that is taken", "ADDRESS_IN_USE", /held by pod "one"/, "192.168.123.2"],
    ["an address outside", "ADDRESS_OUT_OF_RANGE", /10\.9\.9\.9/, "10.9.9.9"],
    ["the gateway's address", "ADDRESS_RESERVED", /gateway/, "192.168.123.1"],
    ["the network's address", "ADDRESS_RESERVED", /network/, "192.168.123.0"],
    ["the broadcast address", "ADDRESS_RESERVED", /broadcast/, "192.168.123.255"],
    ["an address kept by configuration", "ADDRESS_RESERVED", /configuration/, "192.168.123.70"],
    ["an address that is none", "ADDRESS_INVALID", /192\.168\.1/, "192.168.1"],
    ["an IPv6 address", "ADDRESS_OUT_OF_RANGE", /fd00::2/, "fd00::2"],
  ]),
  ...interfaceRows("mac", [
    ["a multicast MAC", "MAC_INVALID", /01:00/, "01:00:5e:00:00:01"],
    ["a MAC that is none", "MAC_INVALID", /52:54/, "52:54"],
    ["another pod's MAC", "MAC_IN_USE", /52:54:00:00:00:01/, "52:54:00:00:00:01"],
  ]),
  ...interfaceRows("mtu", [
    ["an MTU above the network's", "MTU_OUT_OF_RANGE", /9000/, 9000],
    ["an MTU below IPv4's least", "MTU_OUT_OF_RANGE", /575/, 575],
    ["an MTU above Ethernet's most", "MTU_OUT_OF_RANGE", /65536/, 65_536],
  ]),
  ...interfaceRows("network", [["an unknown network", "NETWORK_NOT_FOUND", /"blue"/, "blue"]]),
  [
    "an address asked for twice",
    "ADDRESS_IN_USE",
    "interfaces[1].address",
    /interfaces\[0\]/,
    { interfaces: [{ address: "192.168.123.9" }, { address: "192.168.123.9" }] },
  ],
  [
    "a MAC asked for twice",
    "MAC_IN_USE",
    "interfaces[1].mac",
    /interfaces\[0\]/,
    { interfaces: [{ mac: "52:54:00:00:00:09" }, { mac: "52:54:00:00:00:09" }] },
  ],
  [
    "two default gateways",
    "GATEWAY_CONFLICT",
    "interfaces[1].gateway",
    /default route/,
    {
      interfaces: [
        { address: "192.168.123.50", gateway: "192.168.123.1" },
        { address: "192.168.123.51", gateway: "192.168.123.1" },
      ],
    },
  ],
  [
    "too little memory for the image",
    "MEMORY_TOO_SMALL",
    "resources.memory_mib",
    /40 MiB/,
    { resources: { memoryMib: 40 } },
  ],
  [
    "too little memory for any",
    "MEMORY_TOO_SMALL",
    "resources.memory_mib",
    /1 MiB/,
    { boot: deaf, resources: { memoryMib: 1 } },
  ],
  ...(["kernel", "initrd"] as const).flatMap((key): Row[] => [
    [
      `a missing ${key}`,
      "IMAGE_MISSING",
      `boot.${key}`,
      /nowhere/,
      { boot: { [key]: "/nowhere" } },
    ],
    [
      `the ${key} below a file`,
      "IMAGE_MISSING",
      `boot.${key}`,
      /initrd\/x/,
      { boot: { [key]: at("initrd/x") } },
    ],
    [
      `a directory for the ${key}`,
      "IMAGE_UNREADABLE",
      `boot.${key}`,
      /no file/,
      { boot: { [key]: "/tmp" } },
    ],
    [
      `nothing in the ${key}`,
      "IMAGE_UNREADABLE",
      `boot.${key}`,
      /empty/,
      { boot: { [key]: at("empty") } },
    ],
    [
      `no right to read the ${key}`,
      "IMAGE_UNREADABLE",
      `boot.${key}`,
      /EACCES/,
      { boot: { [key]: at("secret") } },
    ],
  ]),
  [
    "a missing disk",
    "IMAGE_MISSING",
    "boot.disks[0].path",
    /nowhere/,
    { boot: { disks: [{ path: "/nowhere" }] } },
  ],
  [
    "a disk that is no qcow2",
    "IMAGE_UNREADABLE",
    "boot.disks[0].path",
    /qcow2/,
    { boot: { disks: [{ path: debianGuest.initrd, format: "qcow2" }] } },
  ],
];

/** Rows about one field of the first interface. */
function interfaceRows(
  field: string,
  rows: readonly (readonly [string, ErrorCode, RegExp, string | number])[],
): Row[] {
  return rows.map(([what, code, message, value]) => [
    what,
    code,
    `interfaces[0].${field}`,
    message,
    { interfaces: [{ [field]: value }] },
  ]);
}

writeFileSync(at("empty"), "");
writeFileSync(at("secret"), "secret", { mode: 0o000 });

for (const [what, code, field, message, spec] of refused) {
  test.serial(`refused before anything happens: ${what} is ${code}`, async (t) => {
    await refuses(t, rig, spec, { code, at: { field }, message });
  });
}

test.serial("refused before anything happens: an unknown field of JSON", async (t) => {
  const before = await rig.inventory();
  const answer = await curl(rig.daemon.socket, "Create", '{"spec":{"nmae":"x"}}');
  t.is(answer.status, 400);
  t.like(answer.body.details?.[0]?.debug, {
    code: "UNKNOWN_FIELD",
    field: "spec.nmae",
    hint: "Write name",
  });
  t.deepEqual(await rig.changes(before), []);
});

// Files that are there and can be read, and are not what they should be.
const vmlinux = readFileSync(debianGuest.kernel);
writeFileSync(at("text"), "no kernel at all\n".repeat(100));
writeFileSync(at("cut-header"), vmlinux.subarray(0, 40));
writeFileSync(at("cut"), vmlinux.subarray(0, vmlinux.length / 2));
// Documentation/arch/x86/boot.rst: the magic at 0x202; the size of what follows, in paragraphs, at
// 0x1f4.
const bzImage = Buffer.alloc(4096);
bzImage.write("HdrS", 0x202);
bzImage.writeUInt32LE(800_000, 0x1f4);
writeFileSync(at("bzImage"), bzImage);

const unfit: readonly (readonly [
  what: string,
  field: string,
  message: RegExp,
  boot: Spec["boot"],
])[] = [
  ["a kernel that is text", "boot.kernel", /neither/, { ...deaf, kernel: at("text") }],
  [
    "a kernel cut within its header",
    "boot.kernel",
    /cut short/,
    { ...deaf, kernel: at("cut-header") },
  ],
  ["a kernel cut in half", "boot.kernel", /cut short/, { ...deaf, kernel: at("cut") }],
  ["a bzImage cut short", "boot.kernel", /cut short/, { ...deaf, kernel: at("bzImage") }],
];

for (const [what, field, message, boot] of unfit) {
  test.serial(`before anything happens: ${what} is IMAGE_UNREADABLE`, async (t) => {
    const error = await refuses(
      t,
      rig,
      { boot: boot ?? {} },
      { code: "IMAGE_UNREADABLE", at: { field }, message },
    );
    t.is(error?.step, undefined);
    t.true(String(error?.details["path"]).startsWith(`${scratch}/`));
  });
}

const qemus: readonly (readonly [
  what: string,
  script: string,
  code: ErrorCode,
  message: RegExp,
])[] = [
  ["a QEMU that dies at its start", "echo out of luck >&2; exit 3", "QEMU_EXITED", /out of luck/],
  ["a QEMU that is killed at its start", "kill -9 $$", "QEMU_EXITED", /SIGKILL/],
  ["a QEMU that never listens", "exec sleep 1000", "DEADLINE_EXCEEDED", /1000 ms/],
];

for (const [what, script, code, message] of qemus) {
  test.serial(`undone: ${what} is ${code}`, async (t) => {
    useQemu(script);
    await refuses(t, rig, { boot: deaf }, { code, at: { step: "vm.start" }, message }, 1000);
  });
}

test.serial("undone: a QEMU that dies while its guest boots is QEMU_EXITED", async (t) => {
  useQemu(realQemu);
  const killed = reached(rig.client, "vm.start").then(async () => {
    const { pod } = await rig.client.pods.get({ idOrName: "killed" });
    process.kill(pod?.vm?.pid as number, "SIGKILL");
  });
  const exited = { code: "QEMU_EXITED", at: { step: "guest.ready" }, message: /SIGKILL/ } as const;
  await refuses(t, rig, { name: "killed", boot: deaf }, exited);
  await killed;
});

test.serial("undone: a QEMU that is gone, or may not run, is QEMU_MISSING", async (t) => {
  const missing = { code: "QEMU_MISSING", at: { step: "vm.start" } } as const;
  rmSync(at("qemu"));
  await refuses(t, rig, { boot: deaf }, { ...missing, message: /ENOENT/ });
  useQemu("exit 0");
  chmodSync(at("qemu"), 0o644);
  await refuses(t, rig, { boot: deaf }, { ...missing, message: /EACCES/ });
});

test.serial("whatever is asked for is planned or refused with a typed error", async (t) => {
  const words = fc.oneof(
    fc.constantFrom(
      "",
      "one",
      "eth0",
      "192.168.123.2",
      "192.168.123.40",
      "192.168.123.40/8",
      "::1",
      "52:54:00:00:00:01",
      "0.0.0.0/0",
      "default",
    ),
    fc.string({ maxLength: 20 }),
  );
  const some = <T>(each: fc.Arbitrary<T>) => fc.array(each, { maxLength: 3 });
  const asked = fc.record(
    {
      name: words,
      hostname: words,
      resources: fc.record({ vcpu: fc.nat(70), memoryMib: fc.nat(300) }),
      boot: fc.record(
        { kernel: words, cmdline: words, disks: some(fc.record({ path: words, format: words })) },
        { requiredKeys: [] },
      ),
      interfaces: some(
        fc.record(
          {
            network: words,
            address: words,
            mac: words,
            mtu: fc.nat(70_000),
            gateway: words,
            guestName: words,
          },
          { requiredKeys: [] },
        ),
      ),
      dns: fc.record(
        { servers: some(words), search: some(words), options: some(words) },
        { requiredKeys: [] },
      ),
      routes: some(
        fc.record({ destination: words, gateway: words, interface: words }, { requiredKeys: [] }),
      ),
    },
    { requiredKeys: [] },
  );
  const before = await rig.inventory();
  await fc.assert(
    fc.asyncProperty(asked, async (spec) => {
      try {
        const { plan } = await rig.client.pods.create({ spec, planOnly: true });
        t.true((plan?.sections.length ?? 0) > 0);
      } catch (thrown) {
        t.true(isPodnetError(thrown) && thrown.code !== "INTERNAL", JSON.stringify(spec));
      }
    }),
    { numRuns: 300 },
  );
  t.deepEqual(await rig.changes(before), []);
});
