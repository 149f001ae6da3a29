import { fuzz } from "./engine/suite.ts";

fuzz("kernel", async () => {
  const [{ rtnetlink }, { packets }, { qmp }] = await Promise.all([
    import("./targets/rtnetlink.ts"),
    import("./targets/packets.ts"),
    import("./targets/qmp.ts"),
  ]);
  return [...rtnetlink, ...packets, ...qmp];
});
