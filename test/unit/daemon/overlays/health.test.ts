import test from "ava";
import * as wire from "../../../../api/gen/podnet/v1/node_service_pb.ts";
import { parseCidr, parseIp } from "../../../../core/address.ts";
import { parseNetworkName } from "../../../../core/names.ts";
import type { OverlayControl, OverlayView } from "../../../../daemon/overlays/view.ts";
import { overlayChecks, overlaysReady } from "../../../../daemon/api/http/overlay-checks.ts";

const { OK, WARNING, FAILED } = wire.HealthCheck_Status;

const held: OverlayView = {
  name: "flannel",
  phase: "held",
  manager: "etcd",
  networks: [parseCidr("10.5.0.0/16")],
  subnets: [parseCidr("10.5.34.0/24")],
  backend: "vxlan",
  publicIps: [parseIp("192.0.2.1")],
  mtu: 1450,
  reserved: false,
  troubles: [],
  peers: 2,
  skippedKeys: 0,
  network: parseNetworkName("default"),
};

/** What is said of an overlay that differs from one that is well. */
function judged(differs: Partial<OverlayView>): {
  readonly status: wire.HealthCheck_Status | undefined;
  readonly message: string;
  readonly ready: boolean;
} {
  const overlays = {
    list: () => [{ ...held, ...differs }],
    troubles: [],
  } as unknown as OverlayControl;
  const [check] = overlayChecks(overlays);
  return {
    status: check?.status,
    message: check?.message ?? "",
    ready: overlaysReady(overlays),
  };
}

const cases: readonly (readonly [
  what: string,
  differs: Partial<OverlayView>,
  status: wire.HealthCheck_Status,
  message: RegExp,
  ready: boolean,
])[] = [
  [
    "one that is well",
    {},
    OK,
    /^10\.5\.34\.0\/24 of 10\.5\.0\.0\/16 by vxlan, with 2 other hosts$/,
    true,
  ],
  [
    "etcd away, with a subnet",
    { phase: "waiting", staleMs: 12_400 },
    WARNING,
    /stale: .* for 12 s$/,
    true,
  ],
  [
    "etcd away, without one",
    { phase: "waiting", staleMs: 900, subnets: [] },
    WARNING,
    /there is no subnet yet$/,
    false,
  ],
  [
    "no configuration",
    { phase: "waiting", subnets: [], troubles: ["etcd has no configuration"] },
    WARNING,
    /^there is no lease yet: etcd has no configuration$/,
    false,
  ],
  [
    "a lease that is lost",
    { phase: "lost", troubles: ["it is gone"] },
    FAILED,
    /is lost: it is gone$/,
    true,
  ],
  [
    "a lease that is lost with etcd away since",
    { phase: "lost", staleMs: 5000 },
    FAILED,
    /is lost$/,
    true,
  ],
  [
    "one that is being left",
    { phase: "draining" },
    WARNING,
    /when the last pod on it is gone$/,
    true,
  ],
  ["one that was left", { phase: "left", subnets: [] }, OK, /^left/, true],
  ["something in the way", { troubles: ["no way"] }, WARNING, /by vxlan: no way$/, true],
];

for (const [what, differs, status, message, ready] of cases)
  test(`health reports ${what}`, (t) => {
    const judgement = judged(differs);
    t.is(judgement.status, status);
    t.regex(judgement.message, message);
    t.is(judgement.ready, ready);
  });

test("without overlays there is nothing to report, and nothing to wait for", (t) => {
  t.deepEqual(overlayChecks(undefined), []);
  t.true(overlaysReady(undefined));
});
