import type { ServiceImpl } from "@connectrpc/connect";
import { invalid } from "../../../api/fields.ts";
import { PodnetError } from "../../../core/errors.ts";
import { note, type ServiceParts } from "../../api/context.ts";
import type { StoredImageRow } from "../../images/images.ts";
import {
  type PublicAPI,
  InfoResponseSchema,
  PodInfoSchema,
  PodStatsSchema,
} from "../gen/hyperd_pb.ts";
import { imageFilter } from "../requests/image-filter.ts";
import { imageId, pullImage, removeImage, shortName } from "../image-calls.ts";
import { type KnownExecs } from "../known-execs.ts";
import { type KnownPods } from "../known-pods.ts";
import { idOf } from "../pod-ids.ts";
import { chosen, podEntry, vmEntries } from "../list-calls.ts";
import type { InnerContainers } from "../containers/inner-containers.ts";
import { create, label, machineEnded } from "../pod-calls.ts";
import { work } from "../work.ts";
import { podInfoView } from "../pod-info.ts";
import { addPorts, deletePorts, mappingsOf } from "../port-calls.ts";
import { kill } from "../container-calls.ts";
import { statsOf } from "../stats-calls.ts";
import { hyperdVersion, systemInfo } from "../system-calls.ts";
import { isDamaged } from "../../pods/store/pod-rows.ts";
import { containerMethods } from "./container-methods.ts";
import { messageOf } from "./message-of.ts";
import type { PodServices } from "../services/pod-services.ts";
import { refusingUnknown } from "./unknown-fields.ts";
import { userPodOf, userServicesOf } from "./user-pod-of.ts";

type Methods = Partial<ServiceImpl<typeof PublicAPI>>;

/** hyperd's gRPC API, over the same parts as its REST API. */
export const publicApi = (
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
  services: PodServices,
  inner: InnerContainers,
): Methods =>
  refusingUnknown({
    ping: () => ({ hyperdStats: "OK" }),
    version: () => ({ version: hyperdVersion, apiVersion: hyperdVersion }),
    info: () => messageOf(InfoResponseSchema, systemInfo(parts, known)),
    ...podMethods(parts, known, services, inner),
    ...serviceMethods(known, services),
    ...containerMethods(parts, known, execs, inner),
    ...portMethods(parts, known),
    ...imageMethods(parts),
    ...refusedMethods,
  });

function podMethods(
  parts: ServiceParts,
  known: KnownPods,
  services: PodServices,
  inner: InnerContainers,
): Methods {
  const { pods } = parts;
  return {
    podList: ({ podID, vmID }) => ({
      podList: chosen(known, podID, vmID).map((row) => ({
        ...podEntry(row),
        createdAt: BigInt(Math.floor(row.createdMs / 1000)),
        labels: isDamaged(row) ? {} : { ...row.spec.labels },
      })),
    }),

    vMList: ({ podID, vmID }) => ({ vmList: vmEntries(chosen(known, podID, vmID)) }),

    async podCreate({ podSpec, podID }, context) {
      const asked = userPodOf(podSpec);
      if (podID !== "" && asked.id !== "" && podID !== asked.id)
        throw invalid("podID", "The pod has two ids", "Give one: podID, or id of podSpec");
      const pod = asked.id === "" ? { ...asked, id: podID } : asked;
      return { podID: idOf(await create(pod, context, parts, services, inner)) };
    },

    podInfo: ({ podID }) => ({
      podInfo: messageOf(PodInfoSchema, podInfoView(known.find(podID), parts, known)),
    }),

    async podRemove({ podID }, context) {
      const row = known.find(podID, (id) => `Can not find that Pod(${id})`);
      note(parts, context, `delete ${row.name}`);
      await inner.stopAll(row, context.signal);
      await pods.delete(row.id, { force: false });
      return {};
    },

    async podStart({ podID }, context) {
      const row = known.find(podID);
      note(parts, context, `start ${row.name}`);
      await inner.startPod(row, work(context));
      return {};
    },

    async podStop({ podID }, context) {
      const row = known.find(podID);
      note(parts, context, `stop ${row.name}`);
      await inner.stopAll(row, context.signal);
      await pods.stop(row.id, { force: false });
      return { code: machineEnded };
    },

    async podSignal({ podID, signal }, context) {
      const found = known.containers([known.find(podID)]);
      for (const each of found) await kill(each, Number(signal), context, parts);
      return {};
    },

    async podPause({ podID }, context) {
      const row = known.find(podID);
      note(parts, context, `pause ${row.name}`);
      await pods.pause(row.id);
      return {};
    },

    async podUnpause({ podID }, context) {
      const row = known.find(podID);
      note(parts, context, `resume ${row.name}`);
      await pods.resume(row.id);
      return {};
    },

    podStats: async ({ podID }, { signal }) => ({
      podStats: messageOf(PodStatsSchema, await statsOf(known.find(podID), parts, signal)),
    }),

    async setPodLabels({ podID, override, labels }, context) {
      await label(known.find(podID), { set: labels, override }, context, parts);
      return {};
    },
  };
}

function portMethods(parts: ServiceParts, known: KnownPods): Methods {
  return {
    portMappingList: ({ podID }) => ({ portMappings: [...mappingsOf(known.find(podID))] }),
    async portMappingAdd({ podID, portMappings }, context) {
      await addPorts(known.find(podID), portMappings, context, parts);
      return {};
    },
    async portMappingDel({ podID, portMappings }, context) {
      await deletePorts(known.find(podID), portMappings, context, parts);
      return {};
    },
  };
}

function serviceMethods(known: KnownPods, services: PodServices): Methods {
  return {
    serviceList: ({ podID }) => ({
      services: services
        .list(known.find(podID))
        .map((each) => ({ ...each, hosts: [...each.hosts] })),
    }),
    async serviceAdd({ podID, services: asked }, context) {
      await services.add(known.find(podID), userServicesOf(asked), context);
      return {};
    },
    async serviceUpdate({ podID, services: asked }, context) {
      await services.update(known.find(podID), userServicesOf(asked), context);
      return {};
    },
    async serviceDelete({ podID, services: asked }, context) {
      await services.delete(known.find(podID), userServicesOf(asked), context);
      return {};
    },
  };
}

function imageMethods(parts: ServiceParts): Methods {
  return {
    imageList: ({ filter, filterArgs }) => ({
      imageList: parts.images
        .list()
        .filter(imageFilter({ filter, filters: filterArgs }, "filterArgs"))
        .map(imageView),
    }),
    async *imagePull({ image, tag, auth }, context) {
      const sent = auth && {
        ...auth,
        serverAddress: auth.serveraddress,
        registryToken: auth.registrytoken,
        identityToken: "",
      };
      for await (const data of pullImage({ image, tag, auth: sent }, context, parts))
        yield { data };
    },
    imageRemove: ({ image }, context) => ({ images: removeImage(image, context, parts) }),
  };
}

const imageView = ({ digest, names, createdMs, bytes, config }: StoredImageRow) => ({
  id: imageId(digest),
  repoTags: names.filter((name) => !name.includes("@")).map(shortName),
  repoDigests: names.filter((name) => name.includes("@")).map(shortName),
  created: BigInt(Math.floor(createdMs / 1000)),
  virtualSize: BigInt(bytes),
  labels: { ...config.labels },
});

const refused = (what: string) => (): never => {
  throw new PodnetError("UNSUPPORTED", `podnet ${what}`, {
    hint: "See docs/reference/hyperd.md for the calls that work",
  });
};

/** What hyperd answers and podnet does not. */
const refusedMethods: Methods = {
  imagePush: refused("does not push images for hyperctl"),
};
