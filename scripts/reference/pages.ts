import { commandLinePages } from "./command-line.ts";
import { configurationPage } from "./configuration.ts";
import { errorTextsModule } from "./error-texts.ts";
import { manPages } from "./man-pages.ts";
import { metricsPage } from "./metrics.ts";
import { openApiDocument } from "./openapi.ts";

/**
 * Pages of docs/reference and manual pages that are made from the code, and a module that is made
 * from others of them, by their path in the checkout.
 */
export function referencePages(): ReadonlyMap<string, string> {
  const pages = [
    ["configuration.md", configurationPage()],
    ["metrics.md", metricsPage()],
    ["openapi.json", openApiDocument()],
    ...commandLinePages(),
  ] as const;
  return new Map([
    ...pages.map(([page, text]) => [`docs/reference/${page}`, text] as const),
    ...manPages(),
    ["cli/error-texts.ts", errorTextsModule()],
  ]);
}
