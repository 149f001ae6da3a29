import type { Fault } from "../fault.ts";

const teardowns = {
  file: "test/unit/daemon/containers/teardown-queue.test.ts",
  title: "a container's row goes after its link, and its address is free before",
};
const stuck = {
  file: "test/unit/daemon/containers/teardown-queue.test.ts",
  title:
    "a container that cannot be detached holds up no sweep of others, nor waits longer than it must",
};
const plan = "test/unit/daemon/containers/plan.test.ts";
const pendingDels = "test/unit/daemon/containers/pending-dels.test.ts";
const installation = "test/unit/daemon/containers/installation.test.ts";
const runtime = "test/unit/cni/runtime.test.ts";
const join = "test/kernel/netns-join.test.ts";

const written = {
  file: pendingDels,
  title: "a DEL that was written down is done once, unless it was written before the ADD",
};
const full = {
  file: "test/cni/busy.test.ts",
  title:
    "while podnetd is full an ADD is refused with a hint to try again, and a DEL is done as soon as it was written down",
};
const cutShort = {
  file: installation,
  title:
    "an installation that podnetd's end cuts short anywhere is whole or gone after its next start",
};

/**
 * Containers of runtimes: what is written down of them, in which order they go, and machines in
 * their namespaces.
 */
export const containerFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "a container is forgotten before its link is ended",
    file: "daemon/containers/teardown-queue.ts",
    find: "    await network.sweep();\n",
    put: "",
    noticedBy: teardowns,
  },
  {
    kind: "record",
    name: "the end of a container that a crash cuts short is not recorded",
    file: "daemon/containers/teardown-queue.ts",
    find: 'if (row.state !== "deleting") records.deleting(row, text);',
    put: "",
    noticedBy: teardowns,
  },
  {
    kind: "undo",
    name: "a container that cannot be detached holds up the sweep of others",
    file: "daemon/containers/teardown-queue.ts",
    find: "const released = [...this.#released.values()];",
    put: "if (this.#releases.size > 0) return;\n    const released = [...this.#released.values()];",
    noticedBy: stuck,
  },
  {
    kind: "undo",
    name: "the pause after a failure is everybody's",
    file: "daemon/containers/teardown-queue.ts",
    find: "() => this.#sweepAll(), gatherMs);",
    put: "() => this.#sweepAll(), this.#releases.size > 0 ? backoff.firstMs : gatherMs);",
    noticedBy: stuck,
  },
  {
    kind: "release",
    name: "a container's host ports are held when it has gone",
    file: "daemon/containers/teardown-queue.ts",
    find: "    published.release(row.id);\n",
    put: "",
    noticedBy: teardowns,
  },
  {
    kind: "release",
    name: "connections of a container pass to its successor",
    file: "daemon/containers/teardown-queue.ts",
    find: `await host.remove(
      { kind: "connections", of: fragments.map(ruledPart) },
      new AbortController().signal,
    );`,
    put: "",
    noticedBy: teardowns,
  },
  {
    kind: "release",
    name: "a container's addresses are never free again",
    file: "daemon/containers/records.ts",
    find: "    addresses.freed(plans);\n",
    put: "",
    noticedBy: teardowns,
  },
  {
    kind: "mark",
    name: "two containers of a bridge have one MAC",
    file: "daemon/containers/plan/choose-mac.ts",
    find: "return drawnMac ?? madeMac(ipOf(first));",
    put: "return madeMac(ipOf(first));",
    noticedBy: {
      file: "test/unit/daemon/containers/macs.test.ts",
      title: "a container never gets the MAC that another one asked for, whose form its own has",
    },
  },
  {
    kind: "mark",
    name: "the daemon's service range outdoes the configuration's",
    file: "daemon/containers/plan/plan.ts",
    find: "const serviceCidr = named ?? settings.serviceCidr;",
    put: "const serviceCidr = settings.serviceCidr ?? named;",
    noticedBy: {
      file: plan,
      title: "the plan of a container: the configuration's service range, before the daemon's",
    },
  },
  {
    kind: "record",
    name: "a container that asked for an MTU follows its network's",
    file: "daemon/containers/plan/plan.ts",
    find: "...(config.mtu === undefined ? { mtuOfNetwork: true } : {}),",
    put: "mtuOfNetwork: true,",
    noticedBy: {
      file: plan,
      title: "the plan of a container: an MTU: it does not follow the network's",
    },
  },
  {
    kind: "mark",
    name: "an error about a container speaks of a pod",
    file: "daemon/containers/plan/plan.ts",
    find: "planPublished(request.ports, container, hostPorts, containerWords)",
    put: "planPublished(request.ports, container, hostPorts)",
    noticedBy: {
      file: "test/unit/daemon/containers/plan-refused.test.ts",
      title:
        "no plan of a container, and words that its runtime's user knows: a port of IPv6 without any",
    },
  },
  {
    kind: "mark",
    name: "a DEL from before an ADD takes what the ADD made",
    file: "daemon/containers/cni/pending-dels.ts",
    find: "return isMeant(pending, { createdMs: row.createdMs, moment }, this.#bootId);",
    put: "return moment === moment;",
    noticedBy: written,
  },
  {
    kind: "mark",
    name: "whether a DEL means an attachment is asked of a clock that is set",
    file: "cni/protocol/pending.ts",
    find: "if (moment === undefined || made.moment === undefined) return",
    put: "return",
    noticedBy: {
      file: pendingDels,
      title:
        "a DEL that was written down is about what was attached before it, whatever was done to the clock",
    },
  },
  {
    kind: "bound",
    name: "a listener with a full backlog is none that listens",
    file: "linux/sockets/unix-socket.ts",
    find: '    perform("socket", `connect ${basename(path)}`, () => tryConnect(fd, short.path, what));',
    put: '    if (!perform("socket", "connect", () => tryConnect(fd, short.path, what))) throw syscallError("connect", 11, what);',
    noticedBy: {
      file: "test/unit/daemon/api/server.test.ts",
      title: "a listener whose backlog is full is one that listens, and holds up no start",
    },
  },
  {
    kind: "lock",
    name: "which container a DEL means is asked before its turn has come",
    file: "daemon/containers/attachments.ts",
    find: "if (row?.config === request.config.name && isMeant(row))",
    put: "if (row?.config === request.config.name)",
    noticedBy: {
      file: "test/cni/killed.test.ts",
      title:
        "a DEL that came while podnetd was away is done before the next one answers; what was attached since is left",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "a DEL that waits for its container keeps others waiting",
    file: "daemon/containers/cni/pending-dels.ts",
    find: "await Promise.all(Array.from(names, (name) => this.#carryOutOnce(name)));",
    put: "for (const name of names) await this.#carryOutOnce(name);",
    noticedBy: {
      file: pendingDels,
      title:
        "one whose container's turn has not come keeps no other from it, and is asked for once",
    },
  },
  {
    kind: "record",
    name: "a DEL that is written down while an earlier one is done goes with that one",
    file: "daemon/containers/cni/pending-dels.ts",
    find: "if (contentOf(path)?.equals(written) !== true) return;",
    put: "",
    noticedBy: {
      file: pendingDels,
      title: "what is attached or written down while a DEL waits for its turn is not taken with it",
    },
  },
  {
    kind: "repair",
    name: "what is written down while podnetd runs waits for its next start",
    file: "daemon/main/daemon.ts",
    find: 'watchPending(pendingDir, () => void guard("cni", () => pending.carryOut()),',
    put: "watchPending(pendingDir, () => {},",
    noticedBy: full,
    slow: true,
  },
  {
    kind: "bound",
    name: "a plugin is cut off where podnetd is full, as if podnetd were away",
    file: "daemon/containers/cni/serve-cni.ts",
    find: "      turnAway(socket);\n",
    put: "      socket.destroy();\n",
    noticedBy: full,
    slow: true,
  },
  {
    kind: "record",
    name: "a DEL that was done stays written down",
    file: "daemon/containers/cni/pending-dels.ts",
    find: 'perform("file", "remove pending DEL", () => rmSync(path, { force: true }));',
    put: "",
    noticedBy: written,
  },
  {
    kind: "bound",
    name: "what a plugin is just writing down is taken from it",
    file: "daemon/containers/cni/pending-dels.ts",
    find: "if (statSync(path).mtimeMs < Date.now() - temporaryMs)",
    put: "",
    noticedBy: {
      file: pendingDels,
      title:
        "what a plugin that was killed left of a record goes, and one that is being written stays",
    },
  },
  {
    kind: "record",
    name: "an installation that a crash cuts short is not recorded",
    file: "daemon/containers/cni/installation.ts",
    find: "      this.#note({ ...installed, half: true });\n    }\n    const plugin",
    put: "    }\n    const plugin",
    noticedBy: cutShort,
  },
  {
    kind: "release",
    name: "half a plugin stays where runtimes look",
    file: "daemon/containers/cni/whole-files.ts",
    find: "for (const each of [temporaryOf(path), path])",
    put: "for (const each of [path])",
    noticedBy: cutShort,
  },
  {
    kind: "undo",
    name: "an installation that fails stays half there",
    file: "daemon/containers/cni/installation.ts",
    find: '      this.#try("restored", () => void (replaces ? this.#write(former) : this.#remove()));\n      throw thrown;',
    put: "      throw thrown;",
    noticedBy: { file: installation, title: "one that fails anywhere is undone, and reported" },
  },
  {
    kind: "repair",
    name: "an installed plugin is never looked at again",
    file: "daemon/containers/cni/installation.ts",
    find: "if (renewWhole(this.#built(), plugin))",
    put: "if (this.#built() === plugin)",
    noticedBy: {
      file: installation,
      title: "after an upgrade the plugin is renewed before the list, which never goes",
    },
  },
  {
    kind: "release",
    name: "the CNI list goes when podnetd stops",
    file: "daemon/main/daemon.ts",
    find: "      await using _held = held;\n",
    put: "      await using _held = held;\n      installation.uninstall({ force: true });\n",
    noticedBy: {
      file: "test/cni/install.test.ts",
      title:
        "the plugin and its configuration are put where runtimes look, stay while podnetd is stopped, and go",
    },
  },
  {
    kind: "access",
    name: "the plugin is uninstalled while containers are attached",
    file: "daemon/containers/cni/installation.ts",
    find: "if (count > 0 && !force) throw",
    put: "if (count < 0 && !force) throw",
    noticedBy: {
      file: installation,
      title: "with containers attached nothing is uninstalled, nor moved, without force",
    },
  },
  {
    kind: "release",
    name: "an installation over another one removes the list first",
    file: "daemon/containers/cni/installation.ts",
    find: "    if (!replaces) {\n",
    put: "    if (!replaces || former?.half !== true) {\n",
    noticedBy: {
      file: installation,
      title: "an installation over another one fails anywhere with one of them whole",
    },
  },
  {
    kind: "mark",
    name: "the CNI list keeps its newest version to itself",
    file: "daemon/containers/cni/network-list.ts",
    find: 'cniVersions: ["1.0.0", "1.1.0"],',
    put: "",
    noticedBy: {
      file: "test/cni/install.test.ts",
      title:
        "the plugin and its configuration are put where runtimes look, stay while podnetd is stopped, and go",
    },
  },
  {
    kind: "record",
    name: "a plugin has its name before it is on the disk",
    file: "daemon/containers/cni/whole-files.ts",
    find: "      flush(temporary, basename(path));\n",
    put: "",
    noticedBy: {
      file: installation,
      title: "plugin and list are on the disk before and after they have their names",
    },
  },
  {
    kind: "record",
    name: "an installation is half taken away, and then announced",
    file: "daemon/containers/cni/installation.ts",
    find: "if (installed.half === undefined) this.#note({ ...installed, half: true });",
    put: "",
    noticedBy: {
      file: installation,
      title: "the end of an installation that is cut short anywhere is gone through with",
    },
  },
  {
    kind: "escape",
    name: "an argument for plugins ends in the middle and begins another",
    file: "cni/runtime/derive.ts",
    find: 'if (!/[;=]/.test(name) && !value.includes(";")) continue;',
    put: "if (name !== value) continue;",
    noticedBy: {
      file: runtime,
      title: "the environment has every variable of CNI, whatever podnetd's own surroundings have",
    },
  },
  {
    kind: "mark",
    name: "a guest takes over what its host has learnt",
    file: "network/tc-redirect/adopted.ts",
    find: 'state === "permanent" && mac !== undefined',
    put: "mac !== undefined",
    noticedBy: {
      file: "test/unit/network/tc-redirect/taken-over.test.ts",
      title: "neighbours that another program set are taken over, those that were learnt are not",
    },
  },
  {
    kind: "repair",
    name: "a join that a crash cut short cannot be made again",
    file: "network/tc-redirect/redirect.ts",
    find: "  await refuseOthers(netlink, desired, link);\n  await dropRedirect(netlink, link.index);\n",
    put: "  await refuseOthers(netlink, desired, link);\n",
    noticedBy: {
      file: join,
      title: "a join that a crash cut short is taken up anew; leaving twice is as good as once",
    },
  },
  {
    kind: "bound",
    name: "a configuration nested without end uses up the plugin's stack",
    file: "cni/protocol/config-read.ts",
    find: '  if (isNestedTooDeep(stdin)) throw undecodable("it is nested too deep");\n',
    put: "",
    noticedBy: {
      file: "test/unit/cni/protocol/request.test.ts",
      title:
        "what is nested deeper than the plugin's engine can read is refused, much side by side is not",
    },
  },
  {
    kind: "bound",
    name: "a body that never ends keeps its connection of the containers' socket",
    file: "daemon/containers/cni/read-body.ts",
    find: "setTimeout(() => request.destroy(), ms)",
    put: "setTimeout(() => {}, ms)",
    noticedBy: {
      file: "test/cni/fuzzed.test.ts",
      title: "bodies that never end are cut, and keep no caller waiting",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "podman's map of aliases is read as no list",
    file: "cni/protocol/capabilities.ts",
    find: "  if (!Array.isArray(list)) return [];\n  const texts",
    put: "  if (list !== value || !Array.isArray(list)) return [];\n  const texts",
    noticedBy: {
      file: "test/unit/cni/protocol/request.test.ts",
      title:
        "aliases are a list, or podman's map of networks, and whatever else they are fails nothing",
    },
  },
  {
    kind: "release",
    name: "a container that is gone keeps its names",
    file: "daemon/containers/ready.ts",
    find: "    this.#parts.names.leave(id);\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/containers/names.test.ts",
      title: "names of a container are known while it is ready, and by its network alone",
    },
  },
];
