import test from "ava";
import type { Ip, Mac } from "../../../../core/address.ts";
import type { PodnetError } from "../../../../core/errors.ts";
import { systemClock } from "../../../../core/clock.ts";
import type { AttachmentPlan } from "../../../../daemon/containers/attachment-plan.ts";
import { gatherAttachment } from "../../../../daemon/containers/plan/gather.ts";
import { planAttachment } from "../../../../daemon/containers/plan/plan.ts";
import { AttachmentRecords } from "../../../../daemon/containers/records.ts";
import { attachmentRequest } from "../../../../daemon/containers/cni/attachment-request.ts";
import { addRequest } from "./fixtures/add-request.ts";
import { configuration, openNode } from "../fixtures/node.ts";

/**
 * Containers of a node, planned and claimed one after the other; random bytes count up from what is
 * given.
 */
function openSite(random = 0) {
  const config = configuration({ quarantine_s: "0" });
  const node = openNode(config);
  const { db, journal, addresses, definitions } = node;
  const records = new AttachmentRecords({ db, journal, addresses, clock: systemClock });
  const [network] = definitions;
  if (network === undefined) throw new Error("There is no network");
  let drawn = random;
  const world = {
    db,
    config,
    addresses,
    networks: {
      list: () => definitions,
      refuseChanging: () => {},
      domainOf: () => undefined,
      find: () => network,
    },
    randomBytes: (count: number) => new Uint8Array(count).fill(drawn++),
  };
  let added = 0;
  return {
    node,
    add(asked: { readonly mac?: string; readonly ip?: string }): AttachmentPlan {
      const { mac, ip } = asked;
      const capabilities = {
        ...(mac === undefined ? {} : { mac: mac as Mac }),
        ips: ip === undefined ? [] : [ip as Ip],
      };
      const add = addRequest({ capabilities }, { containerId: `c${added++}` });
      const request = attachmentRequest(add);
      const plan = planAttachment(request, gatherAttachment(request, world));
      records.claim(plan);
      return plan;
    },
    [Symbol.dispose]: () => node[Symbol.dispose](),
  };
}

test("a container never gets the MAC that another one asked for, whose form its own has", (t) => {
  using site = openSite();
  const first = site.add({ mac: "0a:58:0a:00:00:05" });
  t.like(first, { mac: "0a:58:0a:00:00:05", addresses: ["10.0.0.2/29"] });
  // Its address is what it asked for; the MAC is drawn.
  const second = site.add({ ip: "10.0.0.5" });
  t.like(second, { mac: "52:54:02:02:02:02", addresses: ["10.0.0.5/29"] });
  t.like(site.add({}), { mac: "0a:58:0a:00:00:03", addresses: ["10.0.0.3/29"] });
  // Likewise for a request without an address.
  site.add({ mac: "0a:58:0a:00:00:06", ip: "10.0.0.4" });
  t.like(site.add({}), { mac: "52:54:06:06:06:06", addresses: ["10.0.0.6/29"] });
});

test("a pod never gets the MAC of a container", async (t) => {
  using site = openSite();
  const { mac } = site.add({});
  const asked = site.node.create({ spec: { interfaces: [{ mac }] } });
  const { code, message } = await t.throwsAsync<PodnetError>(asked);
  t.is(`${code} ${message}`, `MAC_IN_USE MAC ${mac} is taken by container "c0"`);
});

test("a container never gets the MAC of a pod, and what is drawn for it is free", async (t) => {
  using site = openSite(7);
  const interfaces = [{ mac: "0a:58:0a:00:00:05" }];
  await site.node.create({ spec: { interfaces } });
  site.add({ mac: "52:54:09:09:09:09" });
  t.like(site.add({ ip: "10.0.0.5" }), { mac: "52:54:0a:0a:0a:0a" });
});
