// One attempt of a request: a complete response, or none.

import { Contract, OutcomeUnknown, Refused } from './errors.js';

/** A complete response. */
export class Response {
  constructor({ status, replayed = false, retryAfter, version, body }) {
    this.status = status;
    this.replayed = replayed;
    this.retryAfter = retryAfter;
    /** The version of the item, which `If-Match` takes. Only admins receive it. */
    this.version = version;
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
    let body;
    try {
      body = JSON.parse(this.body);
    } catch {
      // The answer of a proxy.
    }
    const { code = '', detail = '', field, item, final = true } = body ?? {};
    return { status: this.status, code, detail, field, item, final, retryAfter: this.retryAfter };
  }

  /**
   * The response if its status is a success. Other 4xx statuses are refusals: the service decided.
   * 408 and every 5xx status leave the outcome open, whether the service sent it or a proxy.
   */
  intoSuccess() {
    const { status } = this;
    if (status >= 200 && status <= 299) return this;
    if (status === 408 || status >= 500) throw new OutcomeUnknown(this.problem());
    if (status >= 400) throw new Refused(this.problem());
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
      version: number(response.headers.get('etag')),
      body: await response.text(),
    });
  } catch (error) {
    throw new OutcomeUnknown(error.cause instanceof Error ? error.cause : error);
  }
}

function number(text) {
  const digits = text?.replace(/^"|"$/g, '');
  return digits && /^\d+$/.test(digits) ? Number(digits) : undefined;
}
