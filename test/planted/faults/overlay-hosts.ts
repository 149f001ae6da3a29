import type { Fault } from "../fault.ts";

const pods = "test/unit/overlay/pods.test.ts";
const answered = {
  file: "test/unit/daemon/dns/answers.test.ts",
  title:
    "a pod of another host is answered for where none of this host's has the name, on their overlay alone",
};
const leased = "test/unit/daemon/overlays/leased-network.test.ts";
const several = "test/unit/daemon/overlays/several.test.ts";
const membership = "test/unit/daemon/overlays/membership.test.ts";
const probes = "test/unit/daemon/overlays/probes.test.ts";

/**
 * A host's part of an overlay in podnetd: its network, reports to programs, and pods and hosts
 * elsewhere.
 */
export const overlayHostsFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "a pod's name is another host's pod's, though this host has one of that name",
    file: "daemon/dns/zone.ts",
    find: "own.length === 0 && zone.others !== undefined",
    put: "zone.others !== undefined",
    noticedBy: answered,
  },
  {
    kind: "access",
    name: "another host reports pods in this host's own subnet",
    file: "daemon/overlays/records/shared-hosts.ts",
    find: "!subnets.some((subnet) => contains(subnet, ip))",
    put: "!subnets.some((subnet) => subnet === ip)",
    noticedBy: answered,
  },
  {
    kind: "mark",
    name: "this host's own records are taken for another's",
    file: "overlay/pods/remote-pods.ts",
    find: "if (at.host === this.#self) return undefined;",
    put: "",
    noticedBy: {
      file: pods,
      title:
        "of one name the oldest has it, by every host's reckoning; this host's own are none of the others",
    },
  },
  {
    kind: "bound",
    name: "a record of another host is read whatever its length",
    file: "overlay/pods/record.ts",
    find: "text.length > longest ? undefined : jsonOf(text);",
    put: "jsonOf(text);",
    noticedBy: {
      file: pods,
      title: "a record is read as it was written; a newer, broken or boundless one is none",
    },
  },
  {
    kind: "release",
    name: "what could not be read is counted when it has gone",
    file: "overlay/pods/remote-pods.ts",
    find: "this.#skipped += by;",
    put: "this.#skipped += 1;",
    noticedBy: { file: pods, title: "what cannot be read is counted for as long as it is there" },
  },
  {
    kind: "record",
    name: "a start draws another MAC, which other hosts do not know",
    file: "daemon/overlays/local-endpoint.ts",
    find: "known[family] ?? macFromRandom(randomBytes(6)),",
    put: "macFromRandom(randomBytes(6)),",
    noticedBy: {
      file: "test/overlay/daemon-join.test.ts",
      title:
        "with etcd away a restarted podnetd goes on with its subnet, says how stale it is, and has the same lease after",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "programs on the host are started before subnet.env is there",
    file: "daemon/overlays/kernel/subnet-file.ts",
    find: "      if (this.#text() !== text) replaceFile(this.#options.path, text);",
    put: "      if (!this.#ready) this.#options.ready();\n      this.#ready = true;\n      if (this.#text() !== text) replaceFile(this.#options.path, text);",
    noticedBy: {
      file: "test/unit/daemon/overlays/subnet-file.test.ts",
      title:
        "the subnet's file is there whole, for all to read, before podnetd reports that it is ready",
    },
  },
  {
    kind: "undo",
    name: "a network goes where its lease goes, from under its pods",
    file: "daemon/overlays/lease/leased-network.ts",
    find: "if (this.#isHeld(shape)) {",
    put: "if (this.#next === undefined) {",
    noticedBy: {
      file: leased,
      title:
        "a lease that came back different waits until the last address of the former subnet is free",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "what the host refused of a network stays written down",
    file: "daemon/overlays/lease/leased-network.ts",
    find: "takeBack(before);",
    put: "void before;",
    noticedBy: {
      file: leased,
      title:
        "what the host refuses is tried again, and until then what was there is what is written down",
    },
    slow: true,
  },
  {
    kind: "lock",
    name: "two overlays of a host hand out addresses of each other",
    file: "daemon/overlays/lease/conflicts.ts",
    find: "others !== undefined && overlaps(mine, others)",
    put: "others !== undefined && mine === others",
    noticedBy: {
      file: several,
      title:
        "of two overlays with addresses or a VNI in common the later is refused, until the other is no more",
    },
  },
  {
    kind: "repair",
    name: "an overlay that cannot be joined once is not tried again",
    file: "daemon/overlays/lease/membership.ts",
    find: "this.#queue.run(name, () => this.#converge(name)),",
    put: "this.#converge(name),",
    noticedBy: {
      file: membership,
      title:
        "a store that cannot be written once is reported, tried again, and holds up no other overlay",
    },
  },
  {
    kind: "repair",
    name: "an overlay that cannot be left once is never left",
    file: "daemon/overlays/lease/membership.ts",
    find: 'throw failed("The overlay cannot be left", thrown);',
    put: "return void thrown;",
    noticedBy: {
      file: membership,
      title: "a leave that fails is tried again until the overlay has gone",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "an overlay that cannot be added is not tried again",
    file: "daemon/overlays/lease/membership.ts",
    find: "const { log, backoff = usualBackoff } = parts;",
    put: "const { log, backoff = { firstMs: 3_600_000, longestMs: 3_600_000 } } = { log: parts.log };",
    noticedBy: {
      file: membership,
      title: "an overlay that cannot be added is reported and tried again, unless it is no more",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "whatever is called config below the prefix is joined",
    file: "daemon/overlays/discover.ts",
    find: "return configKey(networkPrefix(prefix, name)) === key ? name : undefined;",
    put: "return key.startsWith(prefix) ? name : undefined;",
    noticedBy: {
      file: several,
      title: "an overlay is found by its configuration's key, and by no other",
    },
  },
  {
    kind: "bound",
    name: "all hosts are probed at once",
    file: "daemon/overlays/probes/prober.ts",
    find: "if (this.#asked.size >= this.#options.atOnce) return;",
    put: "",
    noticedBy: {
      file: probes,
      title: "so many peers are asked at once and no more, and all of them in the end",
    },
  },
  {
    kind: "record",
    name: "an answer of where a host was before is one of where it is",
    file: "daemon/overlays/probes/prober.ts",
    find: "if (this.#targets.get(key) !== addresses || addresses.length === 0) return;",
    put: "",
    noticedBy: {
      file: probes,
      title:
        "a peer that has moved is asked anew, one that has gone is forgotten, and answers of before count for nothing",
    },
  },
  {
    kind: "escape",
    name: "a host's name moves the cursor of who lists hosts",
    file: "cli/commands/nodes.ts",
    find: '`${harmless(node.name) || "-"}',
    put: '`${node.name || "-"}',
    noticedBy: {
      file: "test/unit/daemon/overlays/api.test.ts",
      title: "podnet nodes: each host with its lease, its answer to a probe, and no escape codes",
    },
  },
  {
    kind: "repair",
    name: "a connection to etcd that cannot be begun ends podnetd",
    file: "etcd/connection.ts",
    find: "throw this.#explained(thrown);",
    put: "throw thrown;",
    noticedBy: {
      file: "test/overlay/etcd-trust.test.ts",
      title: "an etcd of another authority is not spoken to",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "what others write into subnet.env stays there",
    file: "daemon/overlays/kernel/subnet-file.ts",
    find: "if (content === undefined || this.#text() === content) return false;",
    put: "if (content === undefined || this.#text() !== undefined) return false;",
    noticedBy: {
      file: "test/unit/daemon/overlays/subnet-file.test.ts",
      title: "what others took or changed of the file is put back, and nothing else",
    },
  },
  {
    kind: "bound",
    name: "one look asks etcd about the leases of all hosts, however many there are",
    file: "daemon/overlays/lease/lease-ends.ts",
    find: "      .slice(0, most);",
    put: "      .slice(0, 1_000_000 + most);",
    noticedBy: {
      file: "test/unit/overlay/lease-ends.test.ts",
      title:
        "four thousand are asked about a thousand a look and few at once; the next looks come to the others",
    },
  },
  {
    kind: "record",
    name: "a bridge becomes as narrow as its overlay, under pods with a larger MTU",
    file: "daemon/networks/sent-mtus.ts",
    find: "return most === mtu ? {} : { bridgeMtu: most };",
    put: "return most >= mtu ? {} : { bridgeMtu: most };",
    noticedBy: {
      file: "test/unit/daemon/overlays/narrower.test.ts",
      title:
        "pods that come to a network whose overlay carries less get the smaller MTU; those that were there keep what they have",
    },
  },
  {
    kind: "bound",
    name: "the number of unreachable hosts is logged again and again",
    file: "daemon/overlays/probes/reach-report.ts",
    find: "      this.#options.afterMs ?? 5000,\n    ).unref();",
    put: "      this.#options.afterMs ?? 5000,\n    ).unref();\n    this.#reported = -1;",
    noticedBy: {
      file: "test/unit/daemon/overlays/tunnel-watch.test.ts",
      title:
        "a thousand peers that are lost or come back together are one line in the log, and none without a change",
    },
  },
  {
    kind: "record",
    name: "podnetd is ready before this host has a subnet",
    file: "daemon/main/command.ts",
    find: "await daemon.reported();",
    put: "void daemon.reported();",
    noticedBy: {
      file: "test/overlay/daemon-ready.test.ts",
      title: "podnetd is ready when subnet.env is there, and not before",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "leases that etcd does not permit to be read are waited for without a word",
    file: "overlay/drive-lease.ts",
    find: "this.#unread.set(prefix, update.error);",
    put: "this.#unread.delete(prefix);",
    noticedBy: {
      file: "test/overlay/etcd-rights.test.ts",
      title:
        "each right that is missing is named with its keys, and what was missing works once it is there",
    },
    slow: true,
  },
];
