import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import {
  type LinuxContainerSecurityContext,
  NamespaceMode,
  type SELinuxOption,
  type UserNamespace,
} from "./gen/cri_pb.ts";

/**
 * What Kubernetes' interface can ask for and a machine cannot be: each is refused by its name, so
 * that no pod runs without what its author counts on. docs/reference/cri.md has every field.
 */

const cannot = (what: string, field: string, hint: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `podnet cannot ${what}`, { field, hint });

/** Labels of SELinux: the guest's kernel has no policy. `at` is the context that has them. */
export function refuseLabels(options: SELinuxOption | undefined, at: string): void {
  const { user = "", role = "", type = "", level = "" } = options ?? {};
  const label = [user, role, type, level].filter((each) => each !== "").join(":");
  if (label !== "")
    throw cannot(
      `label a pod with "${printable(label)}"`,
      `${at}.selinux_options`,
      "Leave seLinuxOptions out of the pod: its machine confines it",
    );
}

/** kubelet says `NODE` of a pod without a namespace of users. */
export function refuseUsers(options: UserNamespace | undefined, at: string): void {
  if (options !== undefined && options.mode !== NamespaceMode.NODE)
    throw cannot(
      "give a pod a namespace of users",
      `${at}.namespace_options.userns_options`,
      "Leave hostUsers out of the pod: root in a machine is not root of its node",
    );
}

/** A profile of AppArmor as kubelet before 1.30 names it. */
export function refuseOldProfiles(context: LinuxContainerSecurityContext, at: string): void {
  const text = context.apparmorProfile;
  if (text !== "" && text !== "unconfined")
    throw cannot(
      `confine a container by "${printable(text)}"`,
      `${at}.apparmor_profile`,
      "Its machine and seccomp confine it: leave AppArmor's annotations out of the pod",
    );
}
