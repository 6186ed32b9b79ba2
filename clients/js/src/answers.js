// What an answer says about the attempts before it.
//
// An attempt whose answer was lost may have taken effect. Only the service's own decision then counts
// for all attempts, and codes that are checked before the key decide nothing. `clients/answers.json`
// has the reason for each code.

import { DECISIONS, NOTHING_RAN } from './codes.js';

export { DECISIONS, NOTHING_RAN, RETURNS_MONEY } from './codes.js';

/** Whether a repeat of the request is needed to know what became of it. */
export function leavesOpen(status) {
  return status === 408 || (status >= 500 && status <= 599);
}

/** Whether the answer counts for all attempts of the request, also for those that were lost. */
export function isDecision({ status, code }) {
  return status >= 400 && status <= 499 && DECISIONS.has(code);
}

/** Whether the request may have taken effect although it was answered with an error. */
export function mayHaveRun({ status, code }) {
  return leavesOpen(status) && !NOTHING_RAN.has(code);
}
