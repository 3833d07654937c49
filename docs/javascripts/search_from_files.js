// Lets the search work on pages that are opened as files.
//
// A browser starts no worker for a page of file://, and the index of the search is in one. There,
// this runs the script of a worker in a hidden frame instead. The theme would fetch a script for it
// from another host; on pages of a server neither is needed.
if (location.protocol === "file:") {
  // The worker looks for this name to learn that it is in a frame.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>Search</title>";
      frame.addEventListener("load", () => this.start(frame.contentWindow, url), { once: true });
      document.body.appendChild(frame);
    }

    start(scope, url) {
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = scope.document.createElement("script");
      script.src = url;
      script.addEventListener("load", () => {
        this.scope = scope;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
      scope.document.body.appendChild(script);
    }

    postMessage(data) {
      if (this.scope) {
        this.scope.dispatchEvent(new MessageEvent("message", { data }));
      } else {
        this.waiting.push(data);
      }
    }

    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
