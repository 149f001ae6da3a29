import type { ServiceImpl } from "@connectrpc/connect";
import { validateSignal } from "../../../api/validate/exec.ts";
import { abortable } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { note, type ServiceParts } from "../../api/context.ts";
import { attach } from "../attach-calls.ts";
import { containerInfo, exitCodeOfContainer, kill, resize } from "../container-calls.ts";
import { createExec, execInVm, startExec, streamOf } from "../exec-calls.ts";
import { ContainerInfoSchema, type PublicAPI } from "../gen/hyperd_pb.ts";
import { endOf, exitCodeOfExec, type KnownExecs } from "../known-execs.ts";
import type { KnownPods } from "../known-pods.ts";
import { chosen, containerEntries } from "../list-calls.ts";
import { logsOf } from "../log-calls.ts";
import { work } from "../pod-calls.ts";
import { messageOf } from "./message-of.ts";
import { begun, exchange } from "./streams.ts";

type Methods = Partial<ServiceImpl<typeof PublicAPI>>;

/** Containers, and programs in them. */
export function containerMethods(
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
): Methods {
  const { pods } = parts;
  return {
    containerList: ({ podID, vmID }) => ({
      containerList: containerEntries(chosen(known, podID, vmID), parts, known),
    }),

    containerInfo: ({ container }) => ({
      containerInfo: messageOf(
        ContainerInfoSchema,
        containerInfo(known.container(container), parts),
      ),
    }),

    async *containerLogs({ container, stdout, stderr, ...wanted }, { signal }) {
      const kinds = [...(stdout ? ["stdout"] : []), ...(stderr ? ["stderr"] : [])];
      const found = known.container(container);
      for await (const log of logsOf(found, { ...wanted, kinds }, parts, signal)) yield { log };
    },

    async containerStart({ container }, context) {
      const { row } = known.container(container);
      note(parts, context, `start ${row.name}`);
      await pods.start(row.id, work(context));
      return {};
    },

    async containerSignal({ containerID, signal }, context) {
      await kill(known.container(containerID).row, Number(signal), context, parts);
      return {};
    },

    async containerStop({ containerID, timeout }, context) {
      const { row } = known.container(containerID);
      note(parts, context, `stop ${row.name}`);
      if (timeout > 0n) await endWithin(row.id, waitOf(timeout), parts, context.signal);
      await pods.stop(row.id, { force: timeout > 0n });
      return {};
    },

    execCreate({ containerID, command, tty }) {
      const found = known.container(containerID);
      return { execID: createExec(found, { args: command, terminal: tty }, parts, execs).id };
    },

    async *execStart(requests, context) {
      const { first, others } = await begun(requests);
      const found = known.container(first.containerID);
      for await (const stdout of exchange({
        first,
        others,
        signal: context.signal,
        inputOf: ({ stdin }) => stdin,
        endsInput: true,
        open: async (signal) =>
          streamOf(await startExec(found, first.execID, { ...context, signal }, parts, execs)),
      }))
        yield { stdout };
    },

    async *execVM(requests, context) {
      const { first, others } = await begun(requests);
      const row = known.find(first.podID);
      const program = { args: first.command, terminal: false };
      const run = Promise.withResolvers<Awaited<ReturnType<typeof execInVm>>>();
      for await (const stdout of exchange({
        first,
        others,
        signal: context.signal,
        inputOf: ({ stdin }) => stdin,
        endsInput: true,
        open: async (signal) => {
          const started = await execInVm(row, program, { ...context, signal }, parts);
          run.resolve(started);
          return streamOf(started);
        },
      }))
        yield { stdout };
      const { state } = (await run.promise).exec;
      if (state.kind === "failed") throw state.error;
      yield { exitCode: state.kind === "exited" ? state.code : 0 };
    },

    async execSignal({ containerID, execID, signal }, context) {
      const { row, name } = known.container(containerID);
      const number = validateSignal(Number(signal));
      const found = execs.find(pods.live(row.id), execID, name);
      const exec = found.begun?.exec;
      if (exec?.state.kind !== "running")
        throw new PodnetError("WRONG_STATE", `exec ${found.id} does not run`, {
          hint: "Start it, or ask for its exit code",
        });
      note(parts, context, `signal ${number} to ${found.id} of ${row.name}`);
      await exec.signal(number);
      return {};
    },

    async *attach(requests, context) {
      const { first, others } = await begun(requests);
      const found = known.container(first.containerID);
      for await (const data of exchange({
        first,
        others,
        signal: context.signal,
        inputOf: (message) => message.data,
        // A caller that only reads has no messages; its container goes on to have an input.
        endsInput: false,
        open: (signal) => Promise.resolve(attach(found, { ...context, signal }, parts)),
      }))
        yield { data };
    },

    async wait({ container, processId, noHang }, { signal }) {
      const found = known.container(container);
      const live = pods.live(found.row.id);
      const waitFor = async (over: Promise<unknown> | undefined): Promise<void> => {
        if (over !== undefined && !noHang) await abortable(over, signal, "The wait");
      };
      if (processId === "") {
        await waitFor(live?.process?.over);
        return { exitCode: exitCodeOfContainer(found, parts) };
      }
      const created = execs.find(live, processId, found.name);
      await waitFor(created.begun?.exec.over);
      if (created.begun?.exec.state.kind === "running")
        throw new PodnetError("WRONG_STATE", `exec ${created.id} has not ended`, {
          hint: "It runs on: ask again",
        });
      return { exitCode: await exitCodeOfExec(created, signal) };
    },

    async tTYResize({ containerID, execID, height, width }) {
      const found = known.container(containerID);
      await resize(found, { id: execID, rows: height, columns: width }, parts, execs);
      return {};
    },
  };
}

/** Timers of Node end at once beyond that: a caller who wants to wait for ever would kill. */
const longestMs = 2 ** 31 - 1;
const waitOf = (seconds: bigint): number => Math.min(Number(seconds) * 1000, longestMs);

/** Sends the stop signal of a container, and waits so long for its end. */
async function endWithin(
  id: Parameters<ServiceParts["pods"]["live"]>[0],
  ms: number,
  { pods }: ServiceParts,
  signal: AbortSignal,
): Promise<void> {
  const live = pods.live(id);
  const { process, plan } = live ?? {};
  if (process === undefined || plan?.process === undefined) return;
  if (await process.trySignal(plan.process.stopSignal)) await endOf(process.over, signal, ms);
}
