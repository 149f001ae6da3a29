import { fuzz } from "./engine/suite.ts";

fuzz("kernel", async () => {
  const [{ rtnetlink }, { qmp }] = await Promise.all([
    import("./targets/rtnetlink.ts"),
    import("./targets/qmp.ts"),
  ]);
  return [...rtnetlink, ...qmp];
});
