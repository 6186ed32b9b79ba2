// How requests are repeated whose outcome is unknown.

/**
 * For 30 seconds, with pauses from 50 ms to 2 s. All times are in milliseconds. No attempt begins
 * after `deadline`, and the last one may take `attemptTimeout` of the client more.
 */
export const DEFAULT_RETRY = Object.freeze({ deadline: 30_000, pause: 50, pauseMax: 2_000 });

/**
 * The pause doubles, and varies at random by up to half, so that the clients of a service that
 * recovers do not all return at the same moment. It is at least as long as `Retry-After` (seconds),
 * even if that is longer than `pauseMax`. If it does not end before the deadline, the attempts end at
 * once.
 */
export function pauseAfter({ pause, pauseMax }, attempts, retryAfter = 0) {
  const doubled = Math.min(pause * 2 ** Math.min(attempts - 1, 60), pauseMax);
  const varied = doubled * (0.5 + Math.random() / 2);
  return Math.max(varied, retryAfter * 1000);
}

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
