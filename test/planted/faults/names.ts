import type { Fault } from "../fault.ts";

const answers = "test/unit/daemon/dns/answers.test.ts";
const forward = "test/unit/daemon/dns/forward.test.ts";
const follow = "test/unit/daemon/dns/follow-networks.test.ts";
const shares = "test/unit/daemon/dns/shares.test.ts";
const flooded = "test/kernel/names-shares.test.ts";
const forged =
  "a pod that asks by its neighbours' addresses takes no names from them, nor from other networks";
const images = "test/kernel/agent-resolver.test.ts";
const outsiders =
  "who holds no address of the network is not answered, by datagram or by connection";

/** Names: who is answered, what is sent to other servers, and which of their answers count. */
export const namesFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "the resolver answers whoever asks",
    file: "daemon/dns/resolver.ts",
    find: "isIp(from) ? askerAt(parseIp(from)) : undefined;",
    put: "isIp(from) ? (askerAt(parseIp(from)) ?? (from as HolderId)) : undefined;",
    noticedBy: { file: answers, title: outsiders },
  },
  {
    kind: "access",
    name: "private addresses of pools are asked of others",
    file: "daemon/dns/zone.ts",
    find: "if (!isPrivate(pool)) return elsewhere;",
    put: "if (ip !== undefined) return elsewhere;",
    noticedBy: { file: answers, title: "what is asked of pods is answered as it is, or is not" },
  },
  {
    kind: "bound",
    name: "a pod has any number of questions handed on",
    file: "daemon/dns/fair-shares.ts",
    find: "if (own >= most) return undefined;",
    put: "",
    noticedBy: {
      file: answers,
      title: "one pod asks only so much: in a second, at once, and by connections",
    },
  },
  {
    kind: "bound",
    name: "whoever comes late to a full resolver gets no place",
    file: "daemon/dns/fair-shares.ts",
    find: "if (loser === undefined) return undefined;",
    put: "if (loser !== null) return undefined;",
    noticedBy: {
      file: shares,
      title: "when all is full, a network that has less gets a place of the one that has most",
    },
  },
  {
    kind: "bound",
    name: "questions by TCP share their places with datagrams, which are forged",
    file: "daemon/dns/turns.ts",
    find: "return this.#places[way].take(asker, displaced);",
    put: "return this.#places.udp.take(asker, displaced);",
    noticedBy: { file: flooded, title: forged },
  },
  {
    kind: "bound",
    name: "a guest that answers no ARP keeps the answers of others waiting",
    file: "daemon/dns/listen.ts",
    find: 'const more = protocol === "udp" ? { sendBytes } : {};',
    put: "const more = {};",
    noticedBy: { file: flooded, title: forged },
  },
  {
    kind: "access",
    name: "a pod gets stale answers of its neighbours",
    file: "daemon/dns/stale-answers.ts",
    find: "const ownerOf = ({ network, holder }: Asker): string => `${network} ${holder}`;",
    put: "const ownerOf = ({ network }: Asker): string => network;",
    noticedBy: {
      file: shares,
      title:
        "a stale answer has the new question's id and half a minute to live, and is its asker's alone",
    },
  },
  {
    kind: "mark",
    name: "an answer to another question is believed",
    file: "daemon/dns/query.ts",
    find: "if (is !== was && !(inName && lower(is) === lower(was))) return false;",
    put: "if (is !== was && !inName) return false;",
    noticedBy: {
      file: forward,
      title: "an answer is one to what was asked, letters of either case",
    },
  },
  {
    kind: "access",
    name: "a pod is notified of the network it names, whether it is on it or not",
    file: "daemon/dns/zone.ts",
    find: 'networks.filter((each) => each === rest.join("."))',
    put: '[rest.join(".") as NetworkName]',
    noticedBy: {
      file: answers,
      title:
        "a pod is notified of all the networks it is on, that by which it asks first, and of no other",
    },
  },
  {
    kind: "undo",
    name: "a guest goes on asking the network it has left",
    file: "daemon/pods/interfaces/live-interfaces.ts",
    find: "live.needsReconfiguration ||= guestOf(next.plan).hasAgent && !asksAlike(row, next);",
    put: "",
    noticedBy: {
      file: follow,
      title: "a guest's name servers follow its interfaces, there and back",
    },
  },
  {
    kind: "repair",
    name: "a guest that podnetd had no time to notify is not notified by the next",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "|| asksOtherwise(row)",
    put: "",
    noticedBy: {
      file: follow,
      title: "a podnetd that ends before it has notified a guest leaves it to the next",
    },
  },
  {
    kind: "repair",
    name: "an image that cannot be written fails its pod",
    file: "guest-init/agent/network/resolver-file.ts",
    find: 'failedWith(thrown, "EROFS", "EPERM")',
    put: 'failedWith(thrown, "EPERM")',
    noticedBy: { file: images, title: "nameservers in an image that cannot be written" },
    build: "agent",
    slow: true,
  },
  {
    kind: "bound",
    name: "a question from port 0 is answered",
    file: "daemon/dns/listen.ts",
    find: "if (from.port === 0) return resolver.refuse();",
    put: "",
    noticedBy: {
      file: "test/kernel/odd-packets.test.ts",
      title: "a question from port 0 is dropped, and the next is answered: IPv4",
    },
  },
];
