import type { ServiceImpl } from "@connectrpc/connect";
import type { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { parseDiskName, validateAddDisk } from "../../../api/validate/data-disks.ts";
import { validatePodRef } from "../../../api/validate/exec.ts";
import { callerKey } from "../../listeners/callers.ts";
import { note, type ServiceParts, viewPod } from "../context.ts";

type Methods = Pick<ServiceImpl<typeof PodService>, "addDisk" | "removeDisk">;

/** Plugs disks into running pods, and removes them. */
export function podDisks(parts: ServiceParts): Methods {
  const { changes } = parts.pods;
  return {
    async addDisk(request, context) {
      const ref = validatePodRef(request.idOrName);
      const asked = validateAddDisk(request);
      const filesOnly = context.values.get(callerKey)?.role !== "admin";
      note(parts, context, `add disk ${request.idOrName} ${asked.name ?? ""}`);
      const { row, name } = await changes.addDisk(ref, asked, filesOnly);
      return { pod: viewPod(row, parts), name };
    },

    async removeDisk({ idOrName, name }, context) {
      const ref = validatePodRef(idOrName);
      const disk = parseDiskName(name);
      note(parts, context, `remove disk ${idOrName} ${name}`);
      return { pod: viewPod(await changes.removeDisk(ref, disk), parts) };
    },
  };
}
