/** The reason of signals that are aborted without one: Node's own, with the same words. */
const over = new DOMException("This operation was aborted", "AbortError");

/**
 * Node makes a reason with a trace for each signal that is aborted without one, and Connect aborts
 * two at the end of each call. Here all of them share one.
 */
export class SharedAbortController extends AbortController {
  override abort(reason: unknown = over): void {
    super.abort(reason);
  }
}
