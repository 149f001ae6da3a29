import { create } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import * as wire from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { type CreateSpec, validateCreate, validateLabels } from "../../api/validate/validate.ts";
import type { PodSpec } from "../../api/pod-spec.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { describeRestore } from "../../hypervisor/factory/state.ts";
import { refuseBusy } from "../published/hold-error.ts";
import { describePlan } from "../pods/plan/plan-text.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import type { Progress } from "../pods/lifecycle/run-steps.ts";
import { stepTitle } from "../pods/plan/steps.ts";
import { callSpanKey } from "../telemetry/call-span.ts";
import { callerKey } from "../listeners/callers.ts";
import { isDamaged } from "../pods/store/pod-rows.ts";
import { note, type ServiceParts, viewAnyPod, viewPod } from "./context.ts";
import { openConsole, streamConsole } from "./console-stream.ts";
import { podExecs } from "./execs/pod-execs.ts";
import { refuseOthersLinks, refuseProtectedLabels, refuseRules } from "./others-links.ts";
import { podAttach } from "./pod-attach.ts";
import { podDisks } from "./disks/pod-disks.ts";
import { podInterfaces } from "./pod-interfaces.ts";
import { podLifecycle } from "./pod-lifecycle.ts";
import { podLimits } from "./pod-limits.ts";
import { podPackets } from "./pod-packets.ts";
import { podProcess } from "./process/process-stream.ts";
import { podPorts } from "./pod-ports.ts";
import { podTraffic } from "./pod-traffic.ts";
import { Queue } from "../../core/queue.ts";
import { portsOf } from "../pods/interfaces/pod-ports.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import { verifyPod } from "../verify/verify-pod.ts";
import { remotePodView } from "./remote-pod-view.ts";
import { planView, spanView } from "./views.ts";
import { watchPods } from "./watch-stream.ts";

const silent: Progress = { started: () => {}, finished: () => {} };

/** A create or start for a caller, whose concurrent operations are limited. */
function work({ signal, values }: HandlerContext, progress: Progress): CreateOptions {
  const caller = values.get(callerKey);
  const admit = caller === undefined ? {} : { admit: () => caller.create() };
  const span = values.get(callSpanKey);
  const traced: Progress = {
    started: (...step) => progress.started(...step),
    finished: (finished) => {
      span?.step(finished);
      progress.finished(finished);
    },
  };
  return { signal, progress: traced, imagesOnly: imagesOnly(values), ...admit };
}

/**
 * Administrators could read any file on their own; others have podnetd open only what was put there
 * for it.
 */
const imagesOnly = (values: HandlerContext["values"]): boolean =>
  values.get(callerKey)?.role !== "admin";

/** What decides about a pod's packets; none of it where the guard is not in force. */
function filtersOf(plan: PodPlan, { config, network, networks, policies }: ServiceParts) {
  if (config.disableIptables || network.observe.guardLacking.length > 0) return {};
  const policed = policies.decisionsOf({ kind: "pod", key: plan.podId }) !== undefined;
  return { filters: { pod: portsOf(plan, networks.list()), policed } };
}

/** The services that a pod reaches. */
function servicesOf({ interfaces }: PodPlan, { services }: Pick<ServiceParts, "services">) {
  const own = new Set<string | undefined>(interfaces.map(({ network }) => network));
  return services.desired().filter(({ network }) => own.has(network));
}

/** The pod service over this node's pods. */
export function podService(parts: ServiceParts): Partial<ServiceImpl<typeof wire.PodService>> {
  const { pods, config } = parts;
  const validated = (request: wire.CreatePodRequest, { values }: HandlerContext): CreateSpec => {
    const asked = validateCreate(request, { network: config.network.name });
    refuseOthersLinks(asked.spec.interfaces, values, (i) => `interfaces[${i}]`);
    refuseRules(asked.spec, values);
    refuseProtectedLabels(Object.keys(asked.spec.labels), values, "labels");
    return asked;
  };
  return {
    async create(request, context) {
      const asked = validated(request, context);
      if (asked.planOnly) return { plan: await plan(asked, parts, context) };
      note(parts, context, `create ${asked.spec.name ?? ""}`);
      const row = await pods.create(asked, work(context, silent));
      return { pod: viewPod(row, parts) };
    },

    createStream: (request, context) => createStream(validated(request, context), parts, context),

    get({ idOrName }) {
      return { pod: viewAnyPod(pods.findAny(validatePodRef(idOrName)), parts) };
    },

    list({ labels, allHosts }) {
      const wanted = Object.entries(validateLabels(labels));
      const cursor = BigInt(parts.journal.newest);
      const matches = (has: PodSpec["labels"]): boolean =>
        wanted.every(([key, value]) => has[key] === value);
      // The labels of a damaged pod are unknown.
      const rows = pods.listAny().filter((row) => matches(isDamaged(row) ? {} : row.spec.labels));
      const here = rows.map((row) => viewAnyPod(row, parts));
      if (!allHosts || parts.hostRecords === undefined) return { pods: here, cursor };
      const { remote, staleMs } = parts.hostRecords;
      const there = remote.list().filter((pod) => matches(pod.labels));
      return {
        pods: [...here, ...there.map(remotePodView)],
        cursor,
        ...(staleMs === undefined ? {} : { staleMs: BigInt(Math.round(staleMs)) }),
        skippedRecords: remote.skipped,
      };
    },

    async start({ idOrName }, context) {
      note(parts, context, `start ${idOrName}`);
      const row = await pods.start(validatePodRef(idOrName), work(context, silent));
      return { pod: viewPod(row, parts) };
    },

    delete({ idOrName, force }, context) {
      note(parts, context, `delete ${idOrName}`);
      return pods.delete(validatePodRef(idOrName), { force });
    },

    watch: (request, context) => watchPods(request, parts, context.signal),

    console: (request, context) => streamConsole(request, parts, context.signal),

    ...podProcess(parts),

    openConsole: (requests, context) => openConsole(requests, parts, context),

    async verify({ idOrName }, context) {
      const live = pods.running(validatePodRef(idOrName));
      const { signal } = context;
      const { podId, ok, checks } = await verifyPod(live, signal, {
        networks: {
          fragments: parts.networks.fragments(),
          definitions: parts.networks.list(),
        },
        services: servicesOf(live.plan, parts),
        sandboxes: parts.host.sandboxes,
        firewall: async () => (await parts.network.observe.facts(signal)).firewall,
        ...filtersOf(live.plan, parts),
      });
      return { podId, ok, checks: [...checks] };
    },

    ...podAttach(parts, {
      plan: (asked, context) => plan(asked, parts, context),
      options: (context) => work(context, silent),
    }),
    ...podExecs(parts),
    ...podLifecycle(parts),
    ...podInterfaces(parts),
    ...podDisks(parts),
    ...podLimits(parts),
    ...podPorts(parts),
    ...podTraffic(parts),
    ...podPackets(parts),
  };
}

async function plan(
  asked: CreateSpec,
  { pods, network, networks, host }: ServiceParts,
  { values }: HandlerContext,
) {
  const planned = await pods.plan(asked, { imagesOnly: imagesOnly(values) });
  // Checks for busy ports as holding them would: a plan takes nothing.
  refuseBusy(planned.published ?? []);
  const used = new Set(planned.interfaces.map((each) => each.network as string | undefined));
  const shared = networks.fragments().filter(({ key }) => used.has(key));
  const sections = describePlan(
    { plan: planned, spec: asked.spec },
    { shared, networks: networks.list() },
    {
      command: (vm) => host.driver.describe(vm),
      fragment: (fragment) => network.describe(fragment),
      plug: (nic, vm, queues) => host.driver.describePlug(nic, vm, queues),
      restore: describeRestore,
    },
  );
  return planView(planned.podId, sections);
}

async function* createStream(
  asked: CreateSpec,
  parts: ServiceParts,
  context: HandlerContext,
): AsyncGenerator<wire.CreatePodProgress> {
  if (asked.planOnly) {
    yield create(wire.CreatePodProgressSchema, {
      event: { case: "plan", value: await plan(asked, parts, context) },
    });
    return;
  }
  note(parts, context, `create ${asked.spec.name ?? ""}`);
  const queue = new Queue<wire.CreatePodProgress>();
  const progress: Progress = {
    started: (step, startMs, usualMs) => {
      const value = create(wire.StepStartedSchema, {
        step,
        startMs,
        title: stepTitle(step),
        ...(usualMs === undefined ? {} : { usualMs }),
      });
      queue.push(create(wire.CreatePodProgressSchema, { event: { case: "started", value } }));
    },
    finished: (span) => {
      queue.push(
        create(wire.CreatePodProgressSchema, {
          event: { case: "finished", value: spanView(span) },
        }),
      );
    },
  };
  const created = parts.pods.create(asked, work(context, progress));
  // Its failure is thrown below, after the steps that led to it.
  created.then(
    () => queue.end(),
    () => queue.end(),
  );
  yield* queue;
  yield create(wire.CreatePodProgressSchema, {
    event: { case: "pod", value: viewPod(await created, parts) },
  });
}
