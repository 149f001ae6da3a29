import test from "ava";
import * as fc from "fast-check";
import { parseMac } from "../../../../core/address.ts";
import { parseIfName, parsePodId } from "../../../../core/names.ts";
import type { Architecture } from "../../../../hypervisor/architecture.ts";
import type { NicPlan, VmPlan } from "../../../../hypervisor/driver.ts";
import {
  afterLastFd,
  maxDisks,
  type QemuHost,
  qemuArgv,
} from "../../../../hypervisor/argv/argv.ts";
import { kindFor, slotOfPort } from "../../../../hypervisor/argv/machine-kinds.ts";
import { plugCommands } from "../../../../hypervisor/argv/plug-commands.ts";

const nic: NicPlan = {
  nicId: "nic2",
  netdevId: "net2",
  fdName: "fd",
  tap: parseIfName("tap"),
  mac: parseMac("52:54:00:00:00:01"),
  slot: 30,
};

const plan: VmPlan = {
  podId: parsePodId("abcdefghijkl"),
  vcpu: 1,
  memoryMib: 128,
  kernel: "/image/vmlinux",
  initrd: "/image/initramfs.gz",
  cmdline: "",
  disks: [],
  runDir: "/run/podnet/pods/abcdefghijkl",
};
const host = { qemu: "/usr/bin/qemu-system-x86_64", accelerator: "tcg", tbSizeMib: 64 } as const;

/** One option and its value a line, as a person would read it. */
const text = (argv: readonly string[]): string =>
  argv.join(" ").replaceAll(/ -(?=[a-zA-Z])/g, "\n-");

test("the command line of a plain pod", (t) => {
  t.is(
    text(qemuArgv(plan, host)),
    `/usr/bin/qemu-system-x86_64
-name guest=podnet-abcdefghijkl,debug-threads=on
-machine q35,usb=off,vmport=off,sata=off,smbus=off
-accel tcg,tb-size=64
-cpu qemu64
-smp 1
-m size=128M
-nodefaults
-no-user-config
-display none
-S
-pidfile qemu.pid
-chardev socket,id=qmp,path=qmp.sock,server=on,wait=off
-mon chardev=qmp,mode=control
-chardev socket,id=verify,path=witness.sock,server=on,wait=off
-mon chardev=verify,mode=control
-chardev socket,id=console,path=console.sock,server=on,wait=off
-serial chardev:console
-device pcie-pci-bridge,id=br0,bus=pcie.0,addr=0x2
-device virtio-serial-pci,id=serial0,bus=pcie.0,addr=0x3
-chardev socket,id=channel0,path=channel.sock,server=on,wait=off
-device virtserialport,bus=serial0.0,nr=1,id=channel0,chardev=channel0,name=sh.hyper.channel.0
-chardev socket,id=channel1,path=tty.sock,server=on,wait=off
-device virtserialport,bus=serial0.0,nr=2,id=channel1,chardev=channel1,name=sh.hyper.channel.1
-object rng-builtin,id=rng0
-device virtio-rng-pci,rng=rng0,bus=pcie.0,addr=0x4
-kernel /image/vmlinux
-initrd /image/initramfs.gz
-append console=ttyS0 quiet panic=1 no_timer_check noreplace-smp cryptomgr.notests`,
  );
});

test("the command line of a pod of arm64", (t) => {
  const ports = Array.from({ length: 31 }, (_, i) => {
    const [device, fn] = [(0x19 + (i >> 3)).toString(16), i & 7];
    const first = fn === 0 ? ",multifunction=on" : "";
    return `-device pcie-root-port,id=port${i + 1},chassis=${i + 1},bus=pcie.0,addr=0x${device}.${fn}${first}`;
  });
  const onArm = { ...host, qemu: "/usr/bin/qemu-system-aarch64" };
  const arm = { ...plan, arch: "arm64", kernel: "/image/Image" } as const;
  t.is(
    text(qemuArgv(arm, onArm)),
    `/usr/bin/qemu-system-aarch64
-name guest=podnet-abcdefghijkl,debug-threads=on
-machine virt,gic-version=3
-accel tcg,tb-size=64
-cpu cortex-a57
-smp 1
-m size=128M
-nodefaults
-no-user-config
-display none
-S
-pidfile qemu.pid
-chardev socket,id=qmp,path=qmp.sock,server=on,wait=off
-mon chardev=qmp,mode=control
-chardev socket,id=verify,path=witness.sock,server=on,wait=off
-mon chardev=verify,mode=control
-chardev socket,id=console,path=console.sock,server=on,wait=off
-serial chardev:console
${ports.join("\n")}
-device virtio-serial-pci,id=serial0,bus=pcie.0,addr=0x3
-chardev socket,id=channel0,path=channel.sock,server=on,wait=off
-device virtserialport,bus=serial0.0,nr=1,id=channel0,chardev=channel0,name=sh.hyper.channel.0
-chardev socket,id=channel1,path=tty.sock,server=on,wait=off
-device virtserialport,bus=serial0.0,nr=2,id=channel1,chardev=channel1,name=sh.hyper.channel.1
-object rng-builtin,id=rng0
-device virtio-rng-pci,rng=rng0,bus=pcie.0,addr=0x4
-kernel /image/Image
-initrd /image/initramfs.gz
-append console=ttyAMA0 quiet panic=1 cryptomgr.notests`,
  );
  const kvm = text(qemuArgv(arm, { ...onArm, accelerator: "kvm" }));
  t.regex(kvm, /^-machine virt,gic-version=host\n-accel kvm\n-cpu host$/m);
});

test("a NIC goes into a slot of the bridge, or into a port of its own", (t) => {
  const placeIn = (arch: Architecture, bus?: string) => {
    const named = bus === undefined ? nic : { ...nic, bus };
    const { device_add } = plugCommands(named, kindFor(arch));
    return [device_add.bus, device_add.addr];
  };
  t.deepEqual(placeIn("x86_64"), ["br0", "0x1e"]);
  t.deepEqual(placeIn("arm64"), ["port30", "0x0"]);
  t.is(slotOfPort("port30"), 30);
  t.deepEqual(placeIn("x86_64", "theirs"), ["theirs", "0x1e"]);
});

test("a template's memory is in a file that others see, a clone's changes are its own", (t) => {
  const [template, clone] = (["template", "clone"] as const).map((memory) =>
    text(qemuArgv(plan, host, { memory })).split("\n"),
  ) as [string[], string[]];
  const own = text(qemuArgv(plan, host)).split("\n");
  const memory = "-object memory-backend-file,id=ram0,size=128M,mem-path=/proc/self/fd/3,share=";
  const added = (lines: readonly string[]): string[] => lines.filter((l) => !own.includes(l));
  const machine = "-machine q35,usb=off,vmport=off,sata=off,smbus=off,memory-backend=ram0";
  t.deepEqual(added(template), [machine, `${memory}on`]);
  t.deepEqual(added(clone), [machine, `${memory}off`, "-incoming defer"]);
});

test("a clone of a template with a NIC begins with its own, on the tap that it inherits", (t) => {
  const disks = [{ path: "/dev/vg/data", format: "raw", readOnly: false }] as const;
  const start = { memory: "clone", nic } as const;
  const argv = qemuArgv({ ...plan, disks }, host, start);
  // After the memory's descriptor and the disk's.
  t.deepEqual(after(argv, "-netdev"), ["tap,id=net2,fd=5"]);
  t.is(
    after(argv, "-device").at(-1),
    "virtio-net-pci,id=nic2,bus=br0,addr=0x1e,netdev=net2,mac=52:54:00:00:00:01,romfile=,guest_announce=off",
  );
  t.is(afterLastFd({ ...plan, disks }, start), 6);
  t.is(afterLastFd(plan, { memory: "own" }), 3);
});

test("with hardware virtualisation the processor is the host's", (t) => {
  const argv = qemuArgv(plan, { ...host, accelerator: "kvm" });
  t.regex(text(argv), /^-accel kvm\n-cpu host$/m);
});

test("what never may be there", (t) => {
  const argv = qemuArgv(plan, host).join("\n");
  for (const word of ["vhost", "-no-reboot", "-daemonize", "-netdev", "-nic", "script="])
    t.false(argv.includes(word), word);
});

test("in a jail QEMU is configured to refuse what it does not need", (t) => {
  const sandbox =
    /^-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny$/m;
  t.regex(text(qemuArgv({ ...plan, jail: { uid: 5000, cgroups: [] } }, host)), sandbox);
});

/** What follows an option, each time it is there. */
const after = (argv: readonly string[], option: string): string[] =>
  argv.flatMap((word, at) => (argv[at - 1] === option ? [word] : []));

test("disks, with a path full of QEMU's own syntax", (t) => {
  const path = '/disks/a,readonly=off,"b"\n=c';
  const disks = [
    { path, format: "qcow2", readOnly: true },
    { path: "/dev/vg/data", format: "raw", readOnly: false },
  ] as const;
  const argv = qemuArgv({ ...plan, disks }, host);
  t.deepEqual(
    after(argv, "-blockdev").map((word) => JSON.parse(word) as unknown),
    [
      {
        driver: "qcow2",
        "node-name": "disk0",
        "read-only": true,
        // Files that an image names are not opened.
        backing: null,
        file: { driver: "file", filename: "/dev/fdset/0", "read-only": true },
      },
      {
        driver: "raw",
        "node-name": "disk1",
        "read-only": false,
        file: { driver: "host_device", filename: "/dev/fdset/1", "read-only": false },
      },
    ],
  );
  t.deepEqual(
    after(argv, "-device").filter((word) => word.startsWith("virtio-blk-pci")),
    [
      "virtio-blk-pci,id=disk0,drive=disk0,serial=disk0,bus=pcie.0,addr=0x8",
      "virtio-blk-pci,id=disk1,drive=disk1,serial=disk1,bus=pcie.0,addr=0x9",
    ],
  );
  // Its descriptor and, for people, its path: a comma is written twice there, all else has no
  // meaning.
  t.deepEqual(after(argv, "-add-fd"), [
    `fd=3,set=0,opaque=/disks/a,,readonly=off,,"b"\n=c`,
    "fd=4,set=1,opaque=/dev/vg/data",
  ]);
  // A clone's memory is the first that it inherits.
  const cloned = qemuArgv({ ...plan, disks }, host, { memory: "clone" });
  t.is(after(cloned, "-add-fd")[1], "fd=5,set=1,opaque=/dev/vg/data");
});

test("what is written to a disk goes over its image, which is opened to be read", (t) => {
  const overlay = { path: "/state/0.qcow2", bytes: 512, over: "" };
  const disks = [
    { path: "/images/a.raw", format: "raw", readOnly: false, overlay },
    { path: "/images/b.raw", format: "raw", readOnly: true },
  ] as const;
  const argv = qemuArgv({ ...plan, disks }, host);
  t.deepEqual(after(argv, "-add-fd"), [
    "fd=3,set=0,opaque=/images/a.raw",
    "fd=4,set=1,opaque=/state/0.qcow2",
    "fd=5,set=2,opaque=/images/b.raw",
  ]);
  const [over, plain] = after(argv, "-blockdev").map((word) => JSON.parse(word) as unknown);
  t.deepEqual(over, {
    "node-name": "disk0",
    driver: "qcow2",
    "read-only": false,
    file: { driver: "file", filename: "/dev/fdset/1", "read-only": false },
    backing: {
      driver: "raw",
      "read-only": true,
      file: { driver: "file", filename: "/dev/fdset/0", "read-only": true },
    },
  });
  t.like(plain, { "node-name": "disk1", file: { filename: "/dev/fdset/2" } });
  const bounded = { ...disks[0], overlay: { ...overlay, maxBytes: 4096 } };
  const [small] = after(qemuArgv({ ...plan, disks: [bounded] }, host), "-blockdev");
  t.like(JSON.parse(small ?? ""), {
    file: { driver: "raw", size: 4096, file: { driver: "file", filename: "/dev/fdset/1" } },
  });
});

test("an emulated guest trusts a steady TSC, unless the pod's own words say otherwise", (t) => {
  const words = (changed: Partial<typeof plan>, of: Partial<QemuHost>): string =>
    qemuArgv({ ...plan, ...changed }, { ...host, ...of }).at(-1) ?? "";
  t.regex(words({}, { steadyTsc: true }), / tsc=nowatchdog$/);
  t.regex(words({ cmdline: "tsc=unstable" }, { steadyTsc: true }), /nowatchdog tsc=unstable$/);
  t.notRegex(words({}, {}), /tsc=/);
  t.notRegex(words({}, { steadyTsc: true, accelerator: "kvm" }), /tsc=/);
  t.notRegex(words({ arch: "arm64" }, { steadyTsc: true }), /tsc=/);
});

test("what a machine boots", (t) => {
  const { initrd, ...withoutInitrd } = plan;
  const { kernel, ...withoutKernel } = withoutInitrd;
  t.truthy(initrd);
  t.truthy(kernel);
  const disks = [
    { path: "/a", format: "raw", readOnly: true },
    { path: "/b", format: "raw", readOnly: true },
  ] as const;
  const ofKernel = qemuArgv({ ...withoutInitrd, disks, cmdline: "root=/dev/vda" }, host);
  t.deepEqual(ofKernel.slice(-4), [
    "-kernel",
    "/image/vmlinux",
    "-append",
    "console=ttyS0 quiet panic=1 no_timer_check noreplace-smp cryptomgr.notests root=/dev/vda",
  ]);
  t.false(ofKernel.join(" ").includes("bootindex"));
  // The first disk, and nothing that comes later: not a NIC's firmware, nor the second.
  const ofDisk = qemuArgv({ ...withoutKernel, disks }, host);
  t.deepEqual(ofDisk.slice(-2), ["-boot", "strict=on"]);
  t.deepEqual(
    after(ofDisk, "-device").filter((word) => word.startsWith("virtio-blk-pci")),
    [
      "virtio-blk-pci,id=disk0,drive=disk0,serial=disk0,bus=pcie.0,addr=0x8,bootindex=1",
      "virtio-blk-pci,id=disk1,drive=disk1,serial=disk1,bus=pcie.0,addr=0x9",
    ],
  );
  for (const word of ["-kernel", "-initrd", "-append"]) t.false(ofDisk.includes(word));
});

const refusals: readonly (readonly [string, Partial<VmPlan>])[] = [
  ["boot.kernel", { kernel: "vmlinux" }],
  ["boot.initrd", { initrd: "/a\0b" }],
  ["runDir", { runDir: "" }],
  ["boot.disks[0].path", { disks: [{ path: "-drive", format: "raw", readOnly: true }] }],
  [
    "boot.disks",
    {
      disks: Array.from({ length: maxDisks + 1 }, () => ({
        path: "/d",
        format: "raw",
        readOnly: true,
      })),
    },
  ],
  ["boot.cmdline", { cmdline: "a\nb" }],
  ["boot.cmdline", { cmdline: "x".repeat(2047) }],
  ["resources.vcpu", { vcpu: 0 }],
  ["resources.vcpu", { vcpu: 1.5 }],
  ["resources.memory_mib", { memoryMib: Number.NaN }],
];
for (const [field, change] of refusals) {
  test(`refused: ${JSON.stringify(change).slice(0, 60)}`, (t) => {
    const error = t.throws(() => qemuArgv({ ...plan, ...change }, host));
    t.like(error, { code: "INVALID_ARGUMENT", field });
  });
}

test("no path or kernel word adds an option", (t) => {
  const words = qemuArgv({ ...plan, disks: [{ path: "/d", format: "raw", readOnly: true }] }, host);
  const tail = fc
    .string({ unit: "binary-ascii", maxLength: 40 })
    .map((s) => s.replaceAll("\0", ""));
  fc.assert(
    fc.property(tail, tail, tail, (kernel, path, cmdline) => {
      const argv = qemuArgv(
        {
          ...plan,
          kernel: `/${kernel}`,
          cmdline: cmdline.replaceAll(/[^\x20-\x7e]/g, ""),
          disks: [{ path: `/${path}`, format: "raw", readOnly: true }],
        },
        host,
      );
      t.is(argv.length, words.length);
      t.is(argv[argv.indexOf("-kernel") + 1], `/${kernel}`);
    }),
  );
});
