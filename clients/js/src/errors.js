// What can go wrong with a call, and whether a repeat is safe.

/** A call that did not succeed. */
export class StockadeError extends Error {
  /** What the service reported, if it did. */
  problem = undefined;

  constructor(message, options) {
    super(message, options);
    this.name = this.constructor.name;
  }

  /** Whether the request may have taken effect although it failed. */
  get isOutcomeUnknown() {
    return false;
  }

  /** Whether a repeat of the same request can find out what happened. */
  get isRetryable() {
    return false;
  }

  /** False for a refusal that wrote nothing: keep the key, a repeat is decided anew. */
  get isFinal() {
    return true;
  }

  /** Seconds that the service asks to wait before a repeat. */
  get retryAfter() {
    return this.problem?.retryAfter;
  }

  /** Whether this is a refusal with the given code. */
  isCode(_code) {
    return false;
  }
}

/**
 * The service decided against the request. A repeat of it changes nothing.
 *
 * The exception is `too_many_requests`: the same request may be sent again after `retryAfter`.
 */
export class Refused extends StockadeError {
  constructor(problem) {
    super(`the service refused the request: ${describe(problem)}`);
    this.problem = problem;
  }

  isCode(code) {
    return this.problem.code === code;
  }

  get isFinal() {
    return this.problem.final !== false;
  }
}

/** The request may or may not have taken effect. Repeat it, with the same key. */
export class OutcomeUnknown extends StockadeError {
  /** `cause` is a problem of the service, or the error of a connection. */
  constructor(cause, attempts = 1) {
    const isError = cause instanceof Error;
    const why = isError ? cause.message : describe(cause);
    super(`the outcome is unknown after ${attempts} attempts, repeat the same request: ${why}`, {
      cause,
    });
    this.attempts = attempts;
    this.problem = isError ? undefined : cause;
  }

  get isOutcomeUnknown() {
    return true;
  }

  /** False for status 500: a repeat does not fix an internal defect. */
  get isRetryable() {
    return this.problem === undefined || [408, 502, 503, 504].includes(this.problem.status);
  }
}

/**
 * The service sent what the API does not promise: a defect, or not a Stockade at all. After a success
 * status the request has taken effect.
 */
export class Contract extends StockadeError {
  constructor(status, violation) {
    super(`the response ${status} violates the API: ${violation}`);
    this.status = status;
    this.violation = violation;
  }
}

/** The request was never sent, because a value cannot be part of one. */
export class InvalidInput extends StockadeError {
  constructor(field, expected) {
    super(`${field}: expected ${expected}`);
    this.field = field;
    this.expected = expected;
  }
}

function describe({ status, code, detail }) {
  return `${status} ${code || 'no problem+json'}${detail ? `: ${detail}` : ''}`;
}
