import { fuzz } from "./engine/suite.ts";

fuzz("text", async () => {
  const [{ addressTexts }, { text }, { hostFiles }, { images }] = await Promise.all([
    import("./targets/addresses.ts"),
    import("./targets/text.ts"),
    import("./targets/host-files.ts"),
    import("./targets/images.ts"),
  ]);
  return [...addressTexts, ...text, ...hostFiles, images];
});
