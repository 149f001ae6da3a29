import test from "ava";
import { isPodnetError } from "../../../core/errors.ts";
import {
  parseReference,
  referenceText,
  repositoryText,
  withRegistry,
} from "../../../images/reference.ts";

const digest = `sha256:${"a".repeat(64)}`;

test("a name is read as registry, repository, tag and digest", (t) => {
  const texts: readonly [string, string | undefined, string, string | undefined][] = [
    ["busybox", undefined, "busybox", "latest"],
    ["busybox:1.36", undefined, "busybox", "1.36"],
    ["team/app", undefined, "team/app", "latest"],
    ["localhost/app:a_b", "localhost", "app", "a_b"],
    ["10.0.0.1:5000/a/b/c", "10.0.0.1:5000", "a/b/c", "latest"],
    ["[::1]:5000/a:1", "[::1]:5000", "a", "1"],
    ["Host/a", "Host", "a", "latest"],
    [`a.example/app@${digest}`, "a.example", "app", undefined],
    [`app:1@${digest}`, undefined, "app", "1"],
  ];
  for (const [text, registry, repository, tag] of texts)
    t.like(parseReference(text), { registry, repository, tag }, text);
  t.is(referenceText(parseReference(`a.example/app@${digest}`)), `a.example/app@${digest}`);
  t.is(repositoryText(parseReference("a.example/app:1")), "a.example/app");
});

test("what no registry would take as a name is refused", (t) => {
  const bad = [
    "",
    ":1",
    "A",
    "a//b",
    "../a",
    "a/../b",
    "/a",
    "a/",
    "a:",
    "a:-",
    "a b",
    "a\n",
    "a@sha256:12",
    `a@${digest}x`,
    "ho st.example/a",
    "a.example:999999/b",
    `a:${"t".repeat(129)}`,
    "a".repeat(300),
    "http://a.example/b",
    "a.example@b/c",
    "a%2f.example/c",
  ];
  for (const text of bad)
    t.true(
      isPodnetError(
        t.throws(() => parseReference(text)),
        "INVALID_ARGUMENT",
      ),
      text,
    );
});

test("names of one word are Docker Hub's own images there, and nowhere else", (t) => {
  const full = (text: string, registry: string): string =>
    referenceText(withRegistry(parseReference(text), registry));
  t.is(full("busybox", "docker.io"), "docker.io/library/busybox:latest");
  t.is(full("team/app:1", "docker.io"), "docker.io/team/app:1");
  t.is(full("busybox", "a.example"), "a.example/busybox:latest");
  t.is(full("b.example/busybox", "docker.io"), "b.example/busybox:latest");
});

test("a registry that no address can be made of is refused as one", (t) => {
  for (const registry of ["19D.168.123.40", "1.2.3.4.5", "10.0.0.256", "a.example:99999"])
    t.throws(() => parseReference(`${registry}/app`), {
      code: "INVALID_ARGUMENT",
      message: /its registry is not a host/,
    });
  t.is(parseReference("10.0.0.1:5000/app").registry, "10.0.0.1:5000");
});
