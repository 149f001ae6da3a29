import type { Fault } from "./fault.ts";
import { apiFaults } from "./faults/api.ts";
import { guestFaults } from "./faults/guests.ts";
import { machineFaults } from "./faults/machines.ts";
import { networkFaults } from "./faults/network.ts";
import { podFaults } from "./faults/pods.ts";
import { stateFaults } from "./faults/state.ts";

/**
 * Faults that somebody could make tomorrow — a step of the undo forgotten, a lock, a check of a length, a release —
 * each with the test that has to notice it.
 */
export const faults: readonly Fault[] = [
  ...podFaults,
  ...stateFaults,
  ...networkFaults,
  ...machineFaults,
  ...guestFaults,
  ...apiFaults,
];
