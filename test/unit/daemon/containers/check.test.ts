import test from "ava";
import type { IpPrefix } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { Attachments, type AttachmentsParts } from "../../../../daemon/containers/attachments.ts";
import { openLog } from "../../../../linux/log.ts";
import { addRequest } from "./fixtures/add-request.ts";
import { planned } from "./fixtures/planned.ts";

/** Attachments with one ready container, in which a look finds these differences. */
function withContainer(...differences: readonly string[]): Attachments {
  const row = { state: "ready", config: "podnet", plan: planned({}) };
  const parts: Partial<Record<keyof AttachmentsParts, unknown>> = {
    records: {
      named: ({ containerId }: { readonly containerId: string }) =>
        containerId === "one" ? row : undefined,
    },
    networks: { list: () => [] },
    config: { cni: {} },
    network: { check: async () => differences },
    clock: systemClock,
    log: openLog({ component: "cni", level: "silent" }),
  };
  return new Attachments(parts as never);
}

const prevResult = (address: string) => ({
  interfaces: [],
  ips: [{ address: address as IpPrefix }],
  routes: [],
});
const { signal } = new AbortController();

test("CHECK says what of a container's network is not as it was added", async (t) => {
  const request = addRequest();
  await t.notThrowsAsync(withContainer().check(request, signal));
  const changed = withContainer("mtu of eth0 is 1300, should be 1450", "address of eth0 is absent");
  const error = await t.throwsAsync(changed.check(request, signal), {
    instanceOf: PodnetError,
    code: "VERIFY_MISMATCH",
    message: "The container's network is changed: mtu of eth0 is 1300, should be 1450, and 1 more",
  });
  t.deepEqual(error.details, { count: 2 });
  t.regex(error.hint ?? "", /podnet cni list/);
});

test("CHECK says what the runtime's result has that the record has not", async (t) => {
  const reported = addRequest({ prevResult: prevResult("10.77.0.2/24") as never });
  await t.notThrowsAsync(withContainer().check(reported, signal));
  const other = addRequest({ prevResult: prevResult("10.77.0.9/24") as never });
  await t.throwsAsync(withContainer().check(other, signal), {
    code: "VERIFY_MISMATCH",
    message: "The container's network is changed: prevResult lacks 10.77.0.2/24",
  });
});

test("CHECK of a container that is not attached says so", async (t) => {
  const request = addRequest({}, { containerId: "other" });
  await t.throwsAsync(withContainer().check(request, signal), { code: "INTERFACE_NOT_FOUND" });
  const another = addRequest({ name: "another" });
  await t.throwsAsync(withContainer().check(another, signal), { code: "INTERFACE_NOT_FOUND" });
});
