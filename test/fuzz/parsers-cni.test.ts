import { fuzz } from "./engine/suite.ts";

fuzz("cni", async () => (await import("./targets/cni.ts")).cni);
