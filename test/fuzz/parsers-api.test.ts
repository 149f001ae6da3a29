import { fuzz } from "./engine/suite.ts";

fuzz("api", async () => {
  const [{ api }, { hyperd }, { networkSpecs }, { settingTexts }, { storedPlans }] =
    await Promise.all([
      import("./targets/api.ts"),
      import("./targets/hyperd.ts"),
      import("./targets/networks.ts"),
      import("./targets/settings.ts"),
      import("./targets/stored-plans.ts"),
    ]);
  return [...api, ...hyperd, networkSpecs, ...settingTexts, storedPlans];
});
