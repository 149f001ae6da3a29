import type { Fault } from "../fault.ts";

const kernel = "test/kernel/attachments.test.ts";
const rates = "test/kernel/attachment-rates.test.ts";
const later = "test/cni/later-plugins.test.ts";
const second = "test/kernel/attachment-second.test.ts";
const drift = "test/kernel/attachment-drift.test.ts";
const living = "test/cni/living.test.ts";
const join = "test/kernel/netns-join.test.ts";
const namespace = "test/kernel/linux-namespace.test.ts";

const foreign = {
  file: drift,
  title: "in another namespace by the same path nothing is made: a look at the port",
};

const started = {
  file: living,
  title:
    "a start takes a container off whose namespace is another one by now, and makes nothing in that",
};

/**
 * Containers' links: whole or not at all, others' left alone, their rates held, their namespaces
 * entered and left.
 */
export const attachmentFaults: readonly Fault[] = [
  {
    kind: "repair",
    name: "rules of a container that could not be fixed once later plugins are done stay lenient",
    file: "daemon/containers/ready.ts",
    find: "    ready.guarded = false;\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/containers/ready.test.ts",
      title:
        "a port whose rules cannot be fixed when later plugins are done gets them at the next look",
    },
  },
  {
    kind: "repair",
    name: "what plugins after podnet's make is put back while their list is under way",
    file: "network/containers/later.ts",
    find: "const waits = awaitsPlugins === true && guest.up && !isNew;",
    put: "const waits = false;",
    noticedBy: { file: later, title: "tuning: a MAC and an MTU that a later plugin set stay" },
  },
  {
    kind: "mark",
    name: "a route of ours in another plugin's table is not wanted",
    file: "network/containers/routes.ts",
    find: "  route.destination === destination &&\n  route.table !== main &&",
    put: "  false &&",
    noticedBy: {
      file: later,
      title: "a CHECK right after ADD takes what later plugins made for right",
    },
  },
  {
    kind: "mark",
    name: "the address of a machine on a macvtap is given to its link as well",
    file: "network/containers/later.ts",
    find: '(kind === "macvtap" || kind === "ipvtap") &&',
    put: "false &&",
    noticedBy: {
      file: later,
      title: "a machine on a macvtap keeps its address and MAC: laterMacvtap",
    },
  },
  {
    kind: "record",
    name: "what later plugins made is forgotten",
    file: "daemon/containers/records.ts",
    find: "        setAttachmentPlan(db, plan, clock.now());\n        if (made === undefined) return;",
    put: "        setAttachmentPlan(db, { ...plan, later: {} }, clock.now());\n        if (made === undefined) return;",
    noticedBy: {
      file: later,
      title: "what later plugins made outlives podnetd, and a pair that is lost comes back with it",
    },
  },
  {
    kind: "repair",
    name: "an IPv6 default route becomes a next hop of another link's",
    file: "network/containers/routes.ts",
    find: "if (familyOf(route.destination) === 4) return",
    put: "return",
    noticedBy: {
      file: second,
      title:
        "as a second link podnet's leaves the container's default routes first, and takes over when they go",
    },
  },
  {
    kind: "repair",
    name: "a route with several next hops is found by none of its links",
    file: "linux/netlink/rtnetlink-socket.ts",
    find: "nextHops?.map((hop) => hop.link) ?? [index]",
    put: "(nextHops === undefined ? [index] : [])",
    noticedBy: {
      file: second,
      title: "a next hop that others add to podnet's route is left to them",
    },
  },
  {
    kind: "undo",
    name: "what was made for a container stays when its port cannot be made",
    file: "network/containers/attachments.ts",
    find: "if (pair.isNew) await this.#undo(fragment);",
    put: "",
    noticedBy: { file: kernel, title: "what fails half way is undone" },
  },
  {
    kind: "mark",
    name: "a group of links is ended with a foreign link in it",
    file: "network/containers/pending-delete.ts",
    find: "if (ours.length === members.length) await",
    put: "if (ours.length > 0) await",
    noticedBy: {
      file: kernel,
      title: "a group that also has foreign links costs them nothing",
    },
  },
  {
    kind: "mark",
    name: "a link of the container's name is taken for one of ours",
    file: "network/containers/pair.ts",
    find: 'if (host !== undefined && !isOurs(host, alias)) throw taken(hostLink, "on the host");',
    put: "",
    noticedBy: {
      file: kernel,
      title: "a foreign name is refused, and nothing of it touched",
    },
  },
  {
    kind: "lock",
    name: "what is asked of one container is done side by side",
    file: "network/containers/attachments.ts",
    find: "return await turn.queue.run(task, signal);",
    put: "return await task();",
    noticedBy: {
      file: "test/unit/network/attachment/turns.test.ts",
      title: "what is asked of one attachment is done one after the other, of several side by side",
    },
  },
  {
    kind: "bound",
    name: "the way out of a container is not held to its rate",
    file: "network/rates/filters.ts",
    find: "return [addIngress(from), addRedirect(from, to)];",
    put: "return [addIngress(from)];",
    noticedBy: { file: rates, title: "the way out is held to its rate by a link of its own" },
  },
  {
    kind: "mark",
    name: "a machine's namespace answers for it",
    file: "network/tc-redirect/redirect.ts",
    find: "      addRedirect(link.index, index),\n",
    put: "",
    noticedBy: {
      file: join,
      title: "a machine is in a namespace what its link was, and nothing else answers for it",
    },
  },
  {
    kind: "access",
    name: "podnetd's own namespace is taken for a container's",
    file: "linux/namespaces/namespace.ts",
    find: 'if (identity === ownIdentity()) throw unusable(path, "own");',
    put: "",
    noticedBy: {
      file: namespace,
      title: "what is no network namespace is refused, and none of it waited for",
    },
  },
  {
    kind: "mark",
    name: "an end that has another name in its container is taken away and made anew",
    file: "network/containers/links.ts",
    find: "throw elsewhere(fragment, isOurs(host, alias));",
    put: "return [lost(fragment)];",
    noticedBy: {
      file: drift,
      title: "an end that has another name inside is not replaced, and is reported",
    },
  },
  {
    kind: "repair",
    name: "a repair of rules looks at links, too, and brings back those that are released",
    file: "network/bridge/compare.ts",
    find: "...diffHairpin(portsOnBridges(fragment, observed), observed, passes, view.served()),",
    put: "...diffPod(fragment, observed),",
    noticedBy: {
      file: "test/kernel/attachment-published.test.ts",
      title:
        "a repair of rules brings no container back that is released meanwhile, by iptables-nft",
    },
  },
  {
    kind: "repair",
    name: "a lost pair is left lost until the next start",
    file: "network/containers/attachments.ts",
    find: "return isGone(seen.error) ? oneAfterTheOther(links, port) : seen;",
    put: "return seen;",
    noticedBy: {
      file: drift,
      title: "a look at the port alone sees nothing inside, but makes a lost pair anew",
    },
  },
  {
    kind: "mark",
    name: "a container's links are made in a foreign namespace",
    file: "network/containers/attachments.ts",
    find: 'if (namespace !== undefined && inside.identity !== namespace) throw unusable(netns, "another");',
    put: "",
    noticedBy: foreign,
  },
  {
    kind: "mark",
    name: "a namespace is distinguished from its predecessor by a reused inode alone",
    file: "network/containers/kernel.ts",
    find: "...(cookie === undefined ? [] : [cookie])",
    put: "",
    noticedBy: foreign,
  },
  {
    kind: "record",
    name: "the namespace in which a container was attached is not recorded",
    file: "daemon/containers/attachments.ts",
    find: "inNamespace(plan, observed.namespace)",
    put: "plan",
    noticedBy: {
      file: living,
      title:
        "another namespace by a container's path is left alone, by drift and by its network's changes",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a start makes a container's links in the namespace that is at its path by now",
    file: "daemon/containers/recover.ts",
    find: "  if (there !== plan) records.identified(there);\n",
    put: "",
    noticedBy: started,
    slow: true,
  },
  {
    kind: "release",
    name: "a container whose namespace is another one by now has its network for ever",
    file: "daemon/containers/namespace.ts",
    find: "if (namespace === undefined) return undefined;",
    put: "return undefined;",
    noticedBy: started,
    slow: true,
  },
  {
    kind: "record",
    name: "with another firewall containers' ports are let in after networks judge them",
    file: "daemon/main/node.ts",
    find: "    ...containers.map(({ plan }) => hostPart(attachmentFragment(plan, definitions, cni))),\n",
    put: "",
    noticedBy: {
      file: living,
      title:
        "with another firewall than before, what a container publishes is let in before anything else is judged",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "containers do not follow their network",
    file: "daemon/main/node.ts",
    find: "        await attachments.follow(name);\n",
    put: "",
    noticedBy: {
      file: living,
      title:
        "containers follow their network: isolated or not, and its MTU unless they asked for one",
    },
    slow: true,
  },
];
