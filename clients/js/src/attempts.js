// What is known of a request after its attempts.

import { OutcomeUnknown } from './errors.js';

/** Milliseconds for which a lost attempt may still take units: twice the service's bound. */
const SETTLED = 10_000;

/**
 * The attempts of one request. After one whose answer was lost, not every error is the truth.
 *
 * A refusal by something before the service, or by a check that comes before the key, says nothing
 * about the lost attempt. The outcome stays unknown until the service itself decides.
 */
export class Attempts {
  #reads;
  #lost;
  count = 0;

  /** `reads`: the request changes nothing, so a lost attempt of it leaves nothing behind. */
  constructor({ reads = false } = {}) {
    this.#reads = reads;
  }

  /** Counts an attempt that is about to be sent. */
  begin() {
    this.count += 1;
  }

  /** The error that is true for all attempts, after the latest has ended with `error`. */
  judge(error) {
    if (error.isOutcomeUnknown && (error.mayHaveRun || this.#lost === undefined)) {
      if (error.mayHaveRun && !this.#reads) this.#lost = { cause: error.cause, at: performance.now() };
      return new OutcomeUnknown(error.cause, this.count);
    }
    if (this.#lost === undefined || this.#isSettledBy(error)) return error;
    return new OutcomeUnknown(this.#lost.cause, this.count, error);
  }

  /** `judge` for one of several parts of the latest response. The others do not count. */
  judgePart(error) {
    const alone = new Attempts({ reads: this.#reads });
    alone.count = this.count;
    alone.#lost = this.#lost;
    return alone.judge(error);
  }

  #isSettledBy(error) {
    // By then a lost attempt has taken its units, and a repeat would have found them.
    if (error.isFinal === false) return performance.now() - this.#lost.at > SETTLED;
    return error.settlesKey === true;
  }
}
