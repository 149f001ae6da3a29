import type { Fault } from "../fault.ts";

const session = "test/unit/guest-init/channel/session.test.ts";
const clones = {
  file: "test/vm/factory.test.ts",
  title: "clones share no randomness, id or epoch, and their clocks are right",
};
const argv = "test/unit/hypervisor/qemu/argv.test.ts";
const templates = "test/unit/hypervisor/factory/templates.test.ts";

/** Templates, and clones that share nothing. */
export const templatesFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "a clone runs before it has randomness of its own",
    file: "guest-init/channel/session.ts",
    find: "Promise.all([reported, wake.resume()]).catch(",
    put: "void wake.resume();\n    Promise.all([reported]).catch(",
    noticedBy: {
      file: session,
      title: "a clone that refuses to be one, or cannot be resumed, is not gone on with",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a clone is not notified that it is one",
    file: "daemon/pods/lifecycle/actions.ts",
    find: "...(vm.asleep === true ? { wake: wakeClone(vm, live, host, signal) } : {}),",
    put: "...(vm.asleep === undefined ? { wake: wakeClone(vm, live, host, signal) } : {}),",
    noticedBy: {
      file: "test/unit/daemon/pods/steps.test.ts",
      title: "a clone is woken, and no other; each with randomness of its own",
    },
  },
  {
    kind: "record",
    name: "two clones are woken with the same randomness",
    file: "daemon/pods/guest/wake.ts",
    find: "Buffer.from(host.randomBytes(bytes)).toString",
    put: "Buffer.from(host.randomBytes(bytes)).fill(7).toString",
    noticedBy: {
      file: "test/unit/daemon/pods/steps.test.ts",
      title: "a clone is woken, and no other; each with randomness of its own",
    },
  },
  {
    kind: "record",
    name: "AWAKE without randomness is taken",
    file: "guest-init/protocol/extension-messages.ts",
    find: "{1,512}$/",
    put: "{0,512}$/",
    noticedBy: {
      file: "test/unit/guest-init/protocol/messages.test.ts",
      title: "AWAKE is strict, and never without randomness",
    },
  },
  {
    kind: "record",
    name: "a clone does not stir its randomness",
    file: "guest-init/agent/agent.ts",
    find: "    addRandomness(hexBytes(entropy));\n",
    put: "    void [addRandomness, hexBytes, entropy];\n",
    build: "image",
    noticedBy: clones,
    slow: true,
  },
  {
    kind: "record",
    name: "a clone gets its names before its randomness",
    file: "guest-init/channel/parked.ts",
    find: '  { kind: "entropy", bytes: hexBytes(entropy) },\n  { kind: "clock", ms: clockMs },\n  { kind: "twin", ...names },\n',
    put: '  { kind: "clock", ms: clockMs },\n  { kind: "twin", ...names },\n  { kind: "entropy", bytes: hexBytes(entropy) },\n',
    noticedBy: {
      file: session,
      title: "a clone that is known gets its names before it runs, and is asked nothing",
    },
  },
  {
    kind: "record",
    name: "clones keep their template's epoch",
    file: "daemon/pods/guest/wake.ts",
    find: "identity: { ...identity, epoch: hex(host, 16) },",
    put: "identity: { epoch: hex(host, 16), ...identity, },",
    noticedBy: {
      file: "test/unit/daemon/pods/steps.test.ts",
      title:
        "a clone whose template's agent is known has names of its own, and is configured as it wakes",
    },
  },
  {
    kind: "record",
    name: "steps do not stir a clone's randomness",
    file: "guest-init/agent/native/steps.c",
    find: "int result = ioctl(fd, add_entropy, &info) < 0 || ioctl(fd, reseed, 0) < 0 ? -errno : 0;",
    put: "int result = 0;",
    build: "image",
    noticedBy: clones,
    slow: true,
  },
  {
    kind: "bound",
    name: "steps are done before all of them are known to be sound",
    file: "guest-init/agent/native/steps.c",
    find: "if (!are_sound(frame + frame_head, length - frame_head)) break;",
    put: "(void)are_sound;",
    build: "agent",
    noticedBy: {
      file: "test/kernel/agent-steps.test.ts",
      title: "what is no step is refused, and none before it is done",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a template is freed while it is cloned",
    file: "hypervisor/factory/templates.ts",
    find: "if (entry.retired && entry.users === 0) entry.template",
    put: "if (entry.retired) entry.template",
    noticedBy: {
      file: templates,
      title: "those used longest ago go first, and none that is being cloned",
    },
  },
  {
    kind: "release",
    name: "templates are never freed",
    file: "hypervisor/factory/templates.ts",
    find: "entry.template?.[Symbol.dispose]();",
    put: "void entry;",
    noticedBy: {
      file: templates,
      title: "the end frees everything, ends builds, and nothing begins after it",
    },
  },
  {
    kind: "bound",
    name: "any number of templates is kept",
    file: "hypervisor/factory/templates.ts",
    find: "for (const entry of newest.slice(this.#limit)) this.#forget(entry);",
    put: "void newest;",
    noticedBy: {
      file: templates,
      title: "those used longest ago go first, and none that is being cloned",
    },
  },
  {
    kind: "mark",
    name: "files that are replaced make no other template",
    file: "hypervisor/factory/key.ts",
    find: 'return [dev, ino, size, mtimeNs].join(":");',
    put: "void [dev, ino, size, mtimeNs];\n    return path;",
    noticedBy: {
      file: templates,
      title: "a template is of one machine and of these very files, whoever's pod asks",
    },
  },
  {
    kind: "access",
    name: "a template's memory can be written by its clones",
    file: "hypervisor/argv/argv.ts",
    find: 'const share = memory === "template" ? "on" : "off";',
    put: 'const share = "on";',
    noticedBy: {
      file: argv,
      title: "a template's memory is in a file that others see, a clone's changes are its own",
    },
  },
  {
    kind: "access",
    name: "a template is not sealed",
    file: "linux/files/memfd.ts",
    find: "const seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;",
    put: "const seals = (F_SEAL_WRITE & 0) | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;",
    noticedBy: {
      file: "test/kernel/linux-memfd.test.ts",
      title: "what is sealed cannot be changed, through whatever descriptor",
    },
  },
  {
    kind: "access",
    name: "a template's memory is kept as it was built",
    file: "hypervisor/factory/template.ts",
    find: "  memory.seal();\n",
    put: "",
    noticedBy: {
      file: "test/vm/factory.test.ts",
      title: "a template cannot be changed, through whatever descriptor",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a template has read nothing of what its clones run",
    file: "hypervisor/factory/template.ts",
    find: "if (plan.program !== undefined) await guest.preload(plan.program);",
    put: "",
    noticedBy: {
      file: "test/vm/image-pool.test.ts",
      title: "a pod of the image takes the machine, and its main process begins then",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "the libraries of a program are not found",
    file: "guest-init/agent/main-process/linked.ts",
    find: "loaded === undefined ? address : address - loaded.address + loaded.offset",
    put: "address",
    noticedBy: {
      file: "test/unit/guest-init/agent/linked.test.ts",
      title: "a program's own directories come first, and those next to it are found",
    },
  },
];
