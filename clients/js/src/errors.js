// What can go wrong with a call, and whether a repeat is safe.

import { RETURNS_MONEY, isDecision, mayHaveRun } from './answers.js';

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

  /**
   * Whether this is the service's own decision, which counts for earlier attempts as well. Ask it
   * after a call whose outcome was unknown, in the call that repeats it: a refusal with status 401,
   * 403, 404 or 429, or one of a proxy, says nothing about the call before.
   */
  get settlesKey() {
    return false;
  }

  /**
   * Whether a report of a payment was refused so that its money must be returned. Other refusals of a
   * report, also those that settle it, say nothing about the money: it may be another order's, or
   * returned already.
   */
  get returnsMoney() {
    return false;
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
 * The request was refused, and no attempt of this call has taken effect.
 *
 * If `settlesKey`, the service has decided. Otherwise something before the decision has refused the
 * request, such as a token that has expired (401) or a limit of requests (429): mend that, or wait for
 * `retryAfter`, and send the same request again.
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
    // `final` means something for a decision only.
    return this.problem.final !== false || !isDecision(this.problem);
  }

  get settlesKey() {
    return this.isFinal && isDecision(this.problem);
  }

  get returnsMoney() {
    return this.settlesKey && RETURNS_MONEY.has(this.problem.code);
  }
}

/**
 * The key is that of an order or a cart which has ended and holds no units.
 *
 * It was placed by an earlier request, and was cancelled, refunded or not paid in time since. The key
 * stays its own for good, so a new attempt of the buyer needs a new key.
 */
export class NoLongerHeld extends StockadeError {
  /** With the order or the cart as it is now. */
  constructor({ order, cart }) {
    const [what, { state }] = order ? ['order', order] : ['cart', cart];
    super(`the ${what} of this key is ${state}: a new ${what} needs a new key`);
    this.order = order;
    this.cart = cart;
    this.state = state;
  }

  get settlesKey() {
    return true;
  }
}

/** The request may or may not have taken effect. Repeat it, with the same key. */
export class OutcomeUnknown extends StockadeError {
  /**
   * `cause` is a problem of the service, or the error of a connection. `answer` is how a later attempt
   * ended, if that settles nothing: a 401, 403, 404 or 429, `unavailable`, or the answer of a proxy.
   */
  constructor(cause, attempts = 1, answer = undefined) {
    const isError = cause instanceof Error;
    const why = isError ? cause.message : describe(cause);
    const later = answer ? `; a later attempt: ${answer.message}` : '';
    const what = `the outcome is unknown after ${attempts} attempts, repeat the same request`;
    super(`${what}: ${why}${later}`, { cause });
    this.attempts = attempts;
    this.answer = answer;
    this.problem = isError ? undefined : cause;
  }

  /** False if each attempt was answered that nothing ran (`unavailable`). */
  get mayHaveRun() {
    return this.problem === undefined || mayHaveRun(this.problem);
  }

  get retryAfter() {
    return this.answer ? this.answer.retryAfter : super.retryAfter;
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
 * The answer is not what the API promises: a defect, or not a Stockade at all. After a success status
 * of the service the request has taken effect.
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
