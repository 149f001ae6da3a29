import * as z from "zod";
import { flag, goObject, integer, list, text, texts } from "./go-json.ts";
import { portMapping } from "./port-mappings.ts";
import { userServices } from "./user-service.ts";

/** What podnet refuses, whatever is in it. */
const refused = list(z.unknown());

const file = goObject({ name: text, encoding: text, uri: text, content: text });

const fileReference = goObject({
  path: text,
  filename: text,
  perm: text,
  user: text,
  group: text,
  detail: file.optional(),
});

const volume = goObject({
  name: text,
  source: text,
  format: text,
  fstype: text,
  /** Of Ceph's volumes. */
  option: goObject({ user: text, keyring: text, monitors: list(z.string()) }).optional(),
});

/** A container as hyperctl creates it (`UserContainer`). */
export const userContainer = goObject({
  id: text,
  name: text,
  image: text,
  workdir: text,
  restartpolicy: text,
  tty: flag,
  sysctl: texts,
  envs: list(goObject({ env: text, value: text })),
  command: list(z.string()),
  entrypoint: list(z.string()),
  ports: list(
    goObject({ hostport: integer, containerport: integer, serviceport: integer, protocol: text }),
  ),
  volumes: list(goObject({ path: text, volume: text, readonly: flag, detail: volume.optional() })),
  files: list(fileReference),
  user: goObject({ name: text, group: text, additionalgroups: list(z.string()) }).optional(),
  labels: texts,
  stopsignal: text,
  ulimits: refused,
  logpath: text,
});

const networkInterface = goObject({
  bridge: text,
  ip: text,
  ifname: text,
  mac: text,
  mtu: integer,
  gateway: text,
  id: text,
});

/** A pod as hyperctl creates it (`UserPod`). */
export const userPod = goObject({
  id: text,
  hostname: text,
  type: text,
  restartpolicy: text,
  tty: flag,
  labels: texts,
  resource: goObject({ vcpu: integer, memory: integer }).optional(),
  log: goObject({ type: text, config: texts }).optional(),
  dns: list(z.string()),
  dnsoptions: list(z.string()),
  dnssearch: list(z.string()),
  containers: list(userContainer),
  files: list(file),
  volumes: list(volume),
  interfaces: list(networkInterface),
  services: userServices,
  portmappingwhitelists: goObject({
    internalnetworks: list(z.string()),
    externalnetworks: list(z.string()),
  }).optional(),
  portmappings: list(portMapping),
});

export type UserPod = z.infer<typeof userPod>;
export type UserContainer = z.infer<typeof userContainer>;
export type UserVolume = z.infer<typeof volume>;
export type UserFile = z.infer<typeof file>;
export type UserInterface = z.infer<typeof networkInterface>;
