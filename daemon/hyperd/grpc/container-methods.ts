import type { ServiceImpl } from "@connectrpc/connect";
import { validateSignal } from "../../../api/validate/exec.ts";
import { invalid } from "../../../api/fields.ts";
import { abortable } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { note, type ServiceParts } from "../../api/context.ts";
import { attach } from "../attach-calls.ts";
import { exitCodeOfContainer, kill, renameContainer, resize, shownOf } from "../container-calls.ts";
import { containerInfo } from "../containers/container-info.ts";
import { createExec, execInVm, startExec, streamOf } from "../exec-calls.ts";
import { ContainerInfoSchema, type PublicAPI } from "../gen/hyperd_pb.ts";
import { exitCodeOfExec, type KnownExecs } from "../known-execs.ts";
import { type KnownPods } from "../known-pods.ts";
import { chosen, containerEntries } from "../list-calls.ts";
import { logsOf } from "../log-calls.ts";
import type { InnerContainers } from "../containers/inner-containers.ts";
import { createContainer, removeContainer } from "../containers/inner-calls.ts";
import { userContainerOf } from "./user-pod-of.ts";
import { messageOf } from "./message-of.ts";
import { begun, exchange } from "./streams.ts";

type Methods = Partial<ServiceImpl<typeof PublicAPI>>;

/** Containers, and programs in them. */
export function containerMethods(
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
  inner: InnerContainers,
): Methods {
  const { pods } = parts;
  return {
    containerList: ({ podID, vmID }) => ({
      containerList: containerEntries(chosen(known, podID, vmID), known),
    }),

    containerInfo: ({ container }) => ({
      containerInfo: messageOf(ContainerInfoSchema, containerInfo(known.container(container))),
    }),

    async *containerLogs({ container, stdout, stderr, ...wanted }, { signal }) {
      const kinds = [...(stdout ? ["stdout"] : []), ...(stderr ? ["stderr"] : [])];
      const found = known.container(container);
      for await (const log of logsOf(found, { ...wanted, kinds }, parts, signal)) yield { log };
    },

    async containerStart({ container }, context) {
      const found = known.container(container);
      note(parts, context, `start ${shownOf(found)}`);
      await found.start(context);
      return {};
    },

    async containerSignal({ podID, containerID, signal }, context) {
      const found = known.container(containerID);
      if (podID !== "" && known.find(podID).id !== found.row.id)
        throw invalid(
          "podID",
          `${shownOf(found)} is not in pod ${printable(podID)}`,
          "Give its own pod, or none",
        );
      await kill(found, Number(signal), context, parts);
      return {};
    },

    async containerRename({ oldContainerName, newContainerName }, context) {
      await renameContainer(known.container(oldContainerName), newContainerName, context, parts);
      return {};
    },

    async containerStop({ containerID, timeout }, context) {
      const found = known.container(containerID);
      note(parts, context, `stop ${shownOf(found)}`);
      await found.stop(timeout > 0n ? waitOf(timeout) : undefined, context.signal);
      return {};
    },

    async containerCreate({ podID, containerSpec }, context) {
      const row = known.find(podID);
      const asked = userContainerOf(containerSpec);
      return { containerID: await createContainer(row, asked, context, parts, inner) };
    },

    async containerRemove({ containerId }, context) {
      await removeContainer(known.container(containerId), context, parts, inner);
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
      const container = known.container(containerID);
      const { row } = container;
      const number = validateSignal(Number(signal));
      const found = execs.find(pods.live(row.id), execID, container);
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
        await waitFor(found.over());
        return { exitCode: exitCodeOfContainer(found) };
      }
      const created = execs.find(live, processId, found);
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
