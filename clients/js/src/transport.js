// One attempt of a request: a complete response, or none.

import { leavesOpen } from './answers.js';
import { Contract, OutcomeUnknown, Refused } from './errors.js';

/** What every problem of the service is. */
export const PROBLEM = 'application/problem+json';

/** A complete response. */
export class Response {
  constructor({ status, replayed = false, retryAfter, version, type = '', body }) {
    this.status = status;
    this.replayed = replayed;
    this.retryAfter = retryAfter;
    /** The version of the item, which `If-Match` takes. Only admins receive it. */
    this.version = version;
    /** What the body is, as its sender says: `application/json`. */
    this.type = type;
    this.body = body;
  }

  json() {
    try {
      return JSON.parse(this.body);
    } catch (error) {
      throw new Contract(this.status, `the body is not JSON: ${error.message}`);
    }
  }

  problem() {
    const body = this.#object() ?? {};
    // Anybody may have sent the body: the `code` of a gateway can be a number, and is not the service's.
    const text = (name) => (typeof body[name] === 'string' ? body[name] : undefined);
    const isOurs = this.type === PROBLEM;
    return {
      status: this.status,
      code: (isOurs && text('code')) || '',
      detail: text('detail') ?? '',
      field: text('field'),
      item: text('item'),
      final: !isOurs || body.final !== false,
      retryAfter: this.retryAfter,
    };
  }

  /** The body, which must be an object. */
  object() {
    const body = this.json();
    if (body === null || typeof body !== 'object' || Array.isArray(body)) {
      throw new Contract(this.status, 'the body is no object');
    }
    return body;
  }

  /** The rows of a body that has `data`. */
  data() {
    const { data } = this.object();
    if (!Array.isArray(data)) throw new Contract(this.status, 'data is missing');
    return data;
  }

  /** Checks that the response says nothing, which is the success of some calls. */
  nothing() {
    if (this.status !== 204 || this.body !== '') {
      throw new Contract(this.status, 'expected 204 without a body');
    }
  }

  #object() {
    try {
      const body = JSON.parse(this.body);
      return body !== null && typeof body === 'object' && !Array.isArray(body) ? body : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * The response if its status is a success. Other 4xx statuses are refusals of this attempt, by the
   * service or by something before it. 408 and every 5xx status leave the outcome open.
   */
  intoSuccess() {
    const { status } = this;
    if (status >= 200 && status <= 299) return this;
    if (leavesOpen(status)) throw new OutcomeUnknown(this.problem());
    if (status >= 400 && status <= 499) throw new Refused(this.problem());
    throw new Contract(status, 'the API does not use this status');
  }
}

/** Sends a request once. Without a complete response, the outcome is unknown. */
export async function exchange(url, { method, headers, body }, timeout) {
  try {
    // A redirect that a proxy invents must not carry a token elsewhere.
    const options = { method, headers, body, redirect: 'manual' };
    const signal = AbortSignal.timeout(timeout);
    const response = await fetch(url, { ...options, signal });
    return new Response({
      status: response.status,
      replayed: response.headers.get('idempotent-replayed') === 'true',
      retryAfter: number(response.headers.get('retry-after')),
      version: versionOf(response.headers.get('etag')),
      type: (response.headers.get('content-type') ?? '').split(';')[0].trim().toLowerCase(),
      body: await response.text(),
    });
  } catch (error) {
    throw new OutcomeUnknown(error.cause instanceof Error ? error.cause : error);
  }
}

/**
 * The version in an `ETag`. A proxy that compresses makes it weak (`W/"3"`) or adds the name of its
 * coding (`"3-gzip"`).
 */
function versionOf(tag) {
  return number(/^(?:W\/)?"?(\d+)(?:[-;][^"]*)?"?$/.exec(tag ?? '')?.[1]);
}

/** A number of at most 15 digits, which `Number` has exactly. */
function number(text) {
  return /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;
}
